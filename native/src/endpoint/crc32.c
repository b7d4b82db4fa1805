/*
 * CRC-32 of Ethernet, for the ICRC of every packet: crc32(crc so far, address, bytes), the convention of zlib.
 *
 * Carry-less multiplication where the processor has it, in registers of 64 bytes if it has those: a packet of 4 KiB
 * then takes a third of the time. Chosen when the library is loaded; eight tables elsewhere. Folding by as many bytes
 * as four registers hold, then by 16, follows Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction" (Intel, 2009); the constants are x^n mod P, bit-reflected, computed for this polynomial.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define POLYNOMIAL 0xEDB88320u /* reflected */

static uint32_t tables[8][256];

static uint32_t by_tables(uint32_t crc, const uint8_t *at, size_t length)
{
    crc = ~crc;
    while (length >= 8) {
        uint32_t low, high;
        memcpy(&low, at, 4);
        memcpy(&high, at + 4, 4);
        low ^= crc;
        crc = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^ tables[5][low >> 16 & 0xFF] ^ tables[4][low >> 24]
            ^ tables[3][high & 0xFF] ^ tables[2][high >> 8 & 0xFF] ^ tables[1][high >> 16 & 0xFF]
            ^ tables[0][high >> 24];
        at += 8;
        length -= 8;
    }
    while (length-- > 0)
        crc = crc >> 8 ^ tables[0][(crc ^ *at++) & 0xFF];
    return ~crc;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define FOLDS __attribute__((target("pclmul,sse4.1"))) /* includes SSSE3 */

FOLDS static inline __m128i fold(__m128i state, __m128i data, __m128i by)
{
    __m128i low = _mm_clmulepi64_si128(state, by, 0x00), high = _mm_clmulepi64_si128(state, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), data);
}

/* Of `pshufb`. From byte n on: 16 - n zeros, then bytes 0 to n - 1. From byte 16 + n on: bytes n to 15, then n zeros. */
static const uint8_t shifts[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
};

/* Fold the last 1 to 15 bytes, which end at `end`, 16 bytes or more behind where the buffer begins. */
FOLDS static inline __m128i fold_last(__m128i a, const uint8_t *end, size_t left, __m128i by_16)
{
    __m128i up = _mm_loadu_si128((const __m128i *)(shifts + left));
    __m128i down = _mm_loadu_si128((const __m128i *)(shifts + 16 + left));
    __m128i last = _mm_loadu_si128((const __m128i *)(end - 16));
    return fold(_mm_shuffle_epi8(a, up), _mm_blendv_epi8(_mm_shuffle_epi8(a, down), last, down), by_16);
}

/* Fold what is left into 128 bits, and those into the CRC. At least 16 bytes of the buffer lie before `at`. */
FOLDS static uint32_t reduce(__m128i a, const uint8_t *at, size_t left)
{
    /* x^(128+32), x^(128-32); x^64; P and its quotient: all reflected, modulo P. */
    const __m128i by_16 = _mm_set_epi64x(0x00000000CCAA009E, 0x00000001751997D0);
    const __m128i by_8 = _mm_set_epi64x(0, 0x0000000163CD6124);
    const __m128i barrett = _mm_set_epi64x(0x00000001F7011641, 0x00000001DB710641);
    const __m128i low_half = _mm_setr_epi32(-1, 0, -1, 0);
    for (; left >= 16; at += 16, left -= 16)
        a = fold(a, _mm_loadu_si128((const __m128i *)at), by_16);
    if (left > 0)
        a = fold_last(a, at + left, left, by_16);
    /* 128 bits to 64, to 32, then Barrett's reduction. */
    __m128i upper = _mm_clmulepi64_si128(a, by_16, 0x10);
    a = _mm_xor_si128(_mm_srli_si128(a, 8), upper);
    upper = _mm_srli_si128(a, 4);
    a = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low_half), by_8, 0x00), upper);
    upper = _mm_clmulepi64_si128(_mm_and_si128(a, low_half), barrett, 0x10);
    upper = _mm_clmulepi64_si128(_mm_and_si128(upper, low_half), barrett, 0x00);
    return ~(uint32_t)_mm_extract_epi32(_mm_xor_si128(a, upper), 1);
}

/* Four blocks of 16 bytes into one. */
FOLDS static inline __m128i join(__m128i a, __m128i b, __m128i c, __m128i d)
{
    const __m128i by_16 = _mm_set_epi64x(0x00000000CCAA009E, 0x00000001751997D0);
    return fold(fold(fold(a, b, by_16), c, by_16), d, by_16);
}

FOLDS static uint32_t by_multiplication(uint32_t crc, const uint8_t *at, size_t length)
{
    if (length < 16)
        return by_tables(crc, at, length);
    const __m128i by_64 = _mm_set_epi64x(0x00000001C6E41596, 0x0000000154442BD4); /* x^(512+32), x^(512-32) */
    const __m128i *block = (const __m128i *)at;
    __m128i a = _mm_xor_si128(_mm_loadu_si128(block), _mm_cvtsi32_si128((int)~crc));
    size_t left = length - 16;
    block++;
    if (length >= 64) {
        __m128i b = _mm_loadu_si128(block), c = _mm_loadu_si128(block + 1), d = _mm_loadu_si128(block + 2);
        for (block += 3, left -= 48; left >= 64; block += 4, left -= 64) {
            a = fold(a, _mm_loadu_si128(block), by_64);
            b = fold(b, _mm_loadu_si128(block + 1), by_64);
            c = fold(c, _mm_loadu_si128(block + 2), by_64);
            d = fold(d, _mm_loadu_si128(block + 3), by_64);
        }
        a = join(a, b, c, d);
    }
    return reduce(a, (const uint8_t *)block, left);
}

#define WIDE 512 /* bytes: of fewer, most would be folded in the narrow registers all the same */
#define FOLDS_WIDE __attribute__((target("avx512f,avx,vpclmulqdq,pclmul,sse4.1")))

FOLDS_WIDE static inline __m512i fold_wide(__m512i state, const uint8_t *at, __m512i by)
{
    __m512i low = _mm512_clmulepi64_epi128(state, by, 0x00), high = _mm512_clmulepi64_epi128(state, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, _mm512_loadu_si512(at), 0x96); /* exclusive or of all three */
}

/* The same, four blocks of 64 bytes at a time. */
FOLDS_WIDE static uint32_t by_wide_multiplication(uint32_t crc, const uint8_t *at, size_t length)
{
    if (length < WIDE)
        return by_multiplication(crc, at, length);
    /* x^(2048+32), x^(2048-32); x^(512+32), x^(512-32) */
    const __m512i by_256 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x00000001322D1430, 0x000000011542778A));
    const __m512i by_64 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x00000001C6E41596, 0x0000000154442BD4));
    __m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + 64);
    __m512i c = _mm512_loadu_si512(at + 128), d = _mm512_loadu_si512(at + 192);
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
    size_t left = length - 256;
    for (at += 256; left >= 256; at += 256, left -= 256) {
        a = fold_wide(a, at, by_256);
        b = fold_wide(b, at + 64, by_256);
        c = fold_wide(c, at + 128, by_256);
        d = fold_wide(d, at + 192, by_256);
    }
    __m512i rest[3] = {b, c, d};
    for (int i = 0; i < 3; i++)
        a = fold_wide(a, (const uint8_t *)&rest[i], by_64);
    for (; left >= 64; at += 64, left -= 64)
        a = fold_wide(a, at, by_64);
    __m128i narrow = join(_mm512_castsi512_si128(a), _mm512_extracti32x4_epi32(a, 1), _mm512_extracti32x4_epi32(a, 2),
                          _mm512_extracti32x4_epi32(a, 3));
    /* Intel's processors slow down each SSE instruction while the upper halves of wide registers are in use. */
    _mm256_zeroupper();
    return reduce(narrow, at, left);
}

static int has_multiplication(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_PCLMUL) && (c & bit_SSE4_1);
}

/* Also whether the kernel keeps the wide registers. */
static int has_wide_multiplication(void)
{
    __builtin_cpu_init();
    return has_multiplication() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
}

#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>

#define HAS_CRC32 (1 << 7) /* HWCAP_CRC32, Documentation/arch/arm64/elf_hwcaps.rst */

__attribute__((target("+crc"))) static uint32_t by_multiplication(uint32_t crc, const uint8_t *at, size_t length)
{
    crc = ~crc;
    for (; length >= 8; at += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        crc = __crc32d(crc, word);
    }
    while (length-- > 0)
        crc = __crc32b(crc, *at++);
    return ~crc;
}

static int has_multiplication(void)
{
    return (getauxval(AT_HWCAP) & HAS_CRC32) != 0;
}

#else
#define by_multiplication by_tables

static int has_multiplication(void)
{
    return 0;
}
#endif

static uint32_t (*chosen)(uint32_t crc, const uint8_t *at, size_t length) = by_tables;

/* Before any other constructor of this library, and any call of it. */
__attribute__((constructor(101))) static void choose(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++)
            tables[table][byte] = tables[table - 1][byte] >> 8 ^ tables[0][tables[table - 1][byte] & 0xFF];
    if (has_multiplication())
        chosen = by_multiplication;
#if defined(__x86_64__)
    if (has_wide_multiplication())
        chosen = by_wide_multiplication;
#endif
}

/* The name under which the compiled engine calls it. */
HIDDEN uint32_t crc32_gzip_refl(uint32_t crc, int64_t at, int64_t length)
{
    return chosen(crc, (const uint8_t *)(intptr_t)at, (size_t)length);
}

#ifdef MRC_TEST_CRC32
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef uint32_t way(uint32_t crc, const uint8_t *at, size_t length);

static uint8_t bytes[9000];

/* Against the tables for all lengths and alignments of a packet. */
static int differs(way *other)
{
    for (size_t begin = 0; begin < 17; begin++)
        for (size_t length = 0; length < 4300; length++)
            if (by_tables(17, bytes + begin, length) != other(17, bytes + begin, length))
                return printf("differs at %zu, length %zu\n", begin, length);
    return 0;
}

static void print_speed(const char *name, way *each)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    uint32_t crc = 0;
    for (int i = 0; i < 30000; i++)
        crc = each(crc, bytes, 4096);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    printf("%s%s %08x: %.1f GB/s\n", name, each == chosen ? ", chosen" : "", crc, 30000 * 4096e-9 / seconds);
}

/* Every way that this processor has against the tables, the tables against the known check value, and the speeds. */
int main(void)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7919 >> 3 ^ i);
    if (by_tables(0, (const uint8_t *)"123456789", 9) != 0xCBF43926u)
        return puts("the tables are wrong"), 1;
    print_speed("tables", by_tables);
    if (has_multiplication()) {
        if (differs(by_multiplication))
            return 1;
        print_speed("multiplication", by_multiplication);
    }
    if (chosen != by_tables && chosen != by_multiplication) {
        if (differs(chosen))
            return 1;
        print_speed("wide multiplication", chosen);
    }
    return 0;
}
#endif
