/*
 * An EV event listener: prints each entropy value that fails or recovers while writes go to another host.
 *
 *     other end: mrc_ev_listener          listener: mrc_ev_listener HOST
 *     -p PORT of TCP (18516)   -t SECONDS of writes (10)   -n EVENTS after which it ends (0: none)
 *
 * A thread of its own sleeps at a completion channel, as a controller would; each line is
 *
 *     seconds  port  EV  state  events that were dropped before this one
 */
#include <getopt.h>
#include <mrc_ctl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "meeting.h"

#define SIZE 65536
#define AT_ONCE 16 /* events taken in one call */
#define LOOK_MS 100 /* between two looks at whether all is over */

struct listener {
    struct mrc_context *context;
    struct mrc_comp_channel *channel;
    struct mrc_cq *events;
    double begun;
    int wanted;
    atomic_int heard;
    atomic_bool over;
};

static const char *name_of(uint32_t state)
{
    return state == MRC_CTL_EV_GOOD ? "GOOD" : state == MRC_CTL_EV_ASSUMED_BAD ? "ASSUMED_BAD" : "DENIED";
}

static void print_waiting_events(struct listener *listener)
{
    struct mrc_ctl_ev_event events[AT_ONCE];
    int count;
    while ((count = mrc_ctl_poll_ev_event(listener->events, AT_ONCE, events)) > 0)
        for (int i = 0; i < count; i++) {
            const struct mrc_ctl_ev_event *event = &events[i];
            printf("%9.4f %5u  %02x%02x %-12s %6llu\n", seconds() - listener->begun, event->ev.port,
                   event->ev.val[0], event->ev.val[1], name_of(event->state),
                   (unsigned long long)event->drop_count);
            fflush(stdout);
            atomic_fetch_add(&listener->heard, 1);
        }
    if (count < 0)
        DIE("events: %s", strerror(-count));
}

static void *listen_until_over(void *argument)
{
    struct listener *listener = argument;
    struct pollfd channel = {.events = POLLIN};
    struct mrc_cq *cq;
    void *cq_context;
    mrc_get_comp_channel_fd(listener->channel, &channel.fd);
    while (!atomic_load(&listener->over)) {
        mrc_req_notify_cq(listener->events, 0);
        print_waiting_events(listener); /* those that came before it was armed */
        if (poll(&channel, 1, LOOK_MS) == 1 && mrc_get_cq_event(listener->channel, &cq, &cq_context) == 0)
            mrc_ack_cq_events(cq, 1);
    }
    return NULL;
}

static bool is_done(struct listener *listener, double duration)
{
    return seconds() - listener->begun > duration
        || (listener->wanted > 0 && atomic_load(&listener->heard) >= listener->wanted);
}

static void write_until_done(const struct side *side, struct listener *listener, double duration)
{
    struct ibv_sge sge = {(uintptr_t)side->memory, SIZE, side->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    struct ibv_wc wc;
    wr.wr.rdma.remote_addr = side->peer.address;
    wr.wr.rdma.rkey = side->peer.rkey;
    while (!is_done(listener, duration)) {
        int count = 0;
        if (mrc_post_send(side->qp, &wr, &bad) != 0)
            DIE("write: %m");
        while (count == 0)
            count = mrc_poll_cq(side->cq, 1, &wc);
        if (count < 0 || wc.status != IBV_WC_SUCCESS)
            DIE("write: %s", count < 0 ? "overrun" : ibv_wc_status_str(wc.status));
    }
}

static void listen_while_writing(const struct side *side, int wanted, double duration)
{
    struct listener listener = {.context = side->context, .begun = seconds(), .wanted = wanted};
    pthread_t thread;
    if (mrc_create_comp_channel(side->context, &listener.channel) != 0)
        DIE("channel: %m");
    listener.events = mrc_ctl_create_ev_event_cq(side->context, 1024, NULL, listener.channel, 0);
    if (listener.events == NULL)
        DIE("queue of events: %m");
    printf("%9s %5s  %-4s %-12s %6s\n", "Seconds", "Port", "EV", "State", "Lost");
    pthread_create(&thread, NULL, listen_until_over, &listener);
    write_until_done(side, &listener, duration);
    atomic_store(&listener.over, true);
    pthread_join(thread, NULL);
    print_waiting_events(&listener);
    mrc_destroy_cq(listener.events);
    mrc_destroy_comp_channel(listener.channel);
}

int main(int count, char **words)
{
    const char *port = "18516";
    double duration = 10;
    int wanted = 0;
    for (int option; (option = getopt(count, words, "p:t:n:")) != -1;) {
        if (option == '?')
            return 2;
        if (option == 'p')
            port = optarg;
        else if (option == 't')
            duration = atof(optarg);
        else
            wanted = atoi(optarg);
    }
    struct side side = meet(words[optind], port, SIZE);
    if (words[optind] != NULL)
        listen_while_writing(&side, wanted, duration);
    part(&side);
    return 0;
}
