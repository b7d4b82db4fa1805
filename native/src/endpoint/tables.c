/*
 * The engine's tables in one mapping, and the handles through which compiled code finds them.
 *
 * A handle is Numba's struct of an array: two pointers for reference counting (none here), the number of elements, the
 * bytes of one, the address, then shape and strides. The mapping is zero and takes memory as it is written.
 */
#include "endpoint/tables.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "endpoint/published.h"

#define CACHE_LINE 64

static size_t bytes_of(const struct endpoint *endpoint, int table)
{
    int64_t columns = mrc_tables[table].columns;
    int64_t rows = mrc_lengths[endpoint->addresses.count - 1][table];
    return (size_t)(rows * (columns ? columns : 1) * mrc_tables[table].bytes);
}

static size_t rounded(size_t bytes)
{
    return (bytes + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
}

static void write_handle(struct endpoint *endpoint, int table)
{
    const struct mrc_table *kind = &mrc_tables[table];
    int64_t rows = mrc_lengths[endpoint->addresses.count - 1][table];
    int64_t handle[9] = {0, 0, rows, kind->bytes, (int64_t)(intptr_t)endpoint->tables[table], rows, kind->bytes};
    if (kind->columns) {
        handle[2] = rows * kind->columns;
        handle[6] = kind->columns;
        handle[7] = kind->columns * kind->bytes;
        handle[8] = kind->bytes;
    }
    memcpy(endpoint->memory + kind->handle, handle, kind->columns ? sizeof handle : sizeof handle - 16);
}

bool tables_allocate(struct endpoint *endpoint)
{
    size_t at = 2 * MRC_HANDLE_BYTES;
    for (int table = 0; table < MRC_TABLES; table++)
        at += table == MRC_TABLE_DATAPATH_MATRIX ? 0 : rounded(bytes_of(endpoint, table));
    size_t counts_at = at;
    bool is_published = publishing_is_wanted();
    at += is_published ? sizeof(struct published_counts) : 0;
    void *memory = is_published
        ? published_memory(at, &endpoint->published_fd)
        : mmap(NULL, at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    /* Pages of 2 MiB would each hold rows of 20 connections: memory shall grow with what is used. */
    madvise(memory, at, MADV_NOHUGEPAGE);
    endpoint->memory = memory;
    endpoint->memory_bytes = at;
    endpoint->at = (int64_t)(intptr_t)memory;
    endpoint->counts = is_published ? (void *)(endpoint->memory + counts_at) : NULL;
    at = 2 * MRC_HANDLE_BYTES;
    for (int table = 0; table < MRC_TABLES; table++) {
        if (table != MRC_TABLE_DATAPATH_MATRIX) {
            endpoint->tables[table] = endpoint->memory + at;
            at += rounded(bytes_of(endpoint, table));
        }
    }
    /* The codec sees packets as a matrix of their columns: the same memory. */
    endpoint->tables[MRC_TABLE_DATAPATH_MATRIX] = endpoint->tables[MRC_TABLE_ENGINE_PACKETS];
    for (int table = 0; table < MRC_TABLES; table++)
        write_handle(endpoint, table);
    endpoint->qps = endpoint->tables[MRC_TABLE_ENGINE_QPS];
    endpoint->regions = endpoint->tables[MRC_TABLE_ENGINE_REGIONS];
    endpoint->ports = endpoint->tables[MRC_TABLE_ENGINE_PORTS];
    endpoint->nic = endpoint->tables[MRC_TABLE_DATAPATH_NIC];
    endpoint->lease = endpoint->tables[MRC_TABLE_DATAPATH_LEASES];
    endpoint->bursts = endpoint->tables[MRC_TABLE_DATAPATH_BURSTS];
    endpoint->planes = endpoint->tables[MRC_TABLE_DATAPATH_PLANES];
    endpoint->cqs = endpoint->tables[MRC_TABLE_DATAPATH_CQS];
    endpoint->commands = endpoint->tables[MRC_TABLE_DATAPATH_COMMANDS];
    endpoint->queues = endpoint->tables[MRC_TABLE_DATAPATH_QUEUES];
    endpoint->cq_of = endpoint->tables[MRC_TABLE_DATAPATH_CQ_OF];
    return true;
}

void tables_free(struct endpoint *endpoint)
{
    if (endpoint->memory != NULL)
        munmap(endpoint->memory, endpoint->memory_bytes);
    endpoint->memory = NULL;
}
