"""What would an authentication tag on every packet cost, beside the ICRC and beside all that a packet costs?

    pip install '.[bench]'; python -m bench.wire.authentication [--seconds 4]

Time of one core for one packet with 4 KiB of payload, the best of five runs. AES-128-GCM is that of
the `cryptography` package (OpenSSL, with the processor's AES instructions); "long" is its cost for
4 KiB out of a message of 1 MiB, without what the call from Python costs; GMAC is AES-GCM that
encrypts nothing, of the system's OpenSSL. SipHash is compiled here.
The whole packet is what a core spends on it in `bench.live.goodput`, measured right before.
Mark for an option: at most a fifth of the whole packet.
"""

from __future__ import annotations

import argparse
import ctypes
import ctypes.util
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.live_peers import Task, goodput
from openmrc.core.jit import entry, external, kernel
from openmrc.wire.icrc import crc32

PAYLOAD, HEADER = 4096, 64  # bytes
PACKET = PAYLOAD + HEADER
LONG = 1 << 20  # bytes
CALLS = 20_000
KEY = (np.uint64(0x0706050403020100), np.uint64(0x0F0E0D0C0B0A0908))  # of the published test vectors
VECTOR = 0x93F5F5799A932462  # SipHash-2-4 of the bytes 0 to 7 under that key
MARK = 0.2
GET_TAG, TAG_BYTES = 0x10, 16  # EVP_CTRL_AEAD_GET_TAG
U64 = np.uint64
INITIAL = (U64(0x736F6D6570736575), U64(0x646F72616E646F6D), U64(0x6C7967656E657261), U64(0x7465646279746573))
CRYPTO = ctypes.util.find_library("crypto") or "libcrypto.so.3"
begin = external(CRYPTO, "EVP_EncryptInit_ex", "int32", "int64", "int64", "int64", "int64", "int64")
update = external(CRYPTO, "EVP_EncryptUpdate", "int32", "int64", "int64", "int64", "int64", "int32")
finish = external(CRYPTO, "EVP_EncryptFinal_ex", "int32", "int64", "int64", "int64")
control = external(CRYPTO, "EVP_CIPHER_CTX_ctrl", "int32", "int64", "int32", "int32", "int64")
Words = NDArray[np.uint64]
State = tuple[np.uint64, np.uint64, np.uint64, np.uint64]


@kernel
def turned(word: np.uint64, bits: int) -> np.uint64:
    """Rotate left."""
    return (word << U64(bits)) | (word >> U64(64 - bits))


@kernel
def mixed(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64) -> State:
    """Do one SipRound."""
    v0 += v1
    v2 += v3
    v1 = turned(v1, 13) ^ v0
    v3 = turned(v3, 16) ^ v2
    v0 = turned(v0, 32) + v3
    v2 += v1
    v3 = turned(v3, 21) ^ v0
    v1 = turned(v1, 17) ^ v2
    return v0, v1, turned(v2, 32), v3


@kernel
def siphash(words: Words, first: np.uint64, second: np.uint64, compress: int, finish: int) -> np.uint64:
    """Return the SipHash-`compress`-`finish` of whole words (Aumasson and Bernstein, 2012)."""
    v0, v1, v2, v3 = INITIAL[0] ^ first, INITIAL[1] ^ second, INITIAL[2] ^ first, INITIAL[3] ^ second
    for index in range(len(words)):
        v3 ^= words[index]
        for _ in range(compress):
            v0, v1, v2, v3 = mixed(v0, v1, v2, v3)
        v0 ^= words[index]
    last = U64(len(words) * 8 & 0xFF) << U64(56)
    v3 ^= last
    for _ in range(compress):
        v0, v1, v2, v3 = mixed(v0, v1, v2, v3)
    v0 ^= last
    v2 ^= U64(0xFF)
    for _ in range(finish):
        v0, v1, v2, v3 = mixed(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@entry
def siphash_many(words: Words, tags: Words, compress: int, finish: int, count: int) -> None:
    """Hash `count` times, each time under another key, and keep the last tag."""
    for number in range(count):
        tags[0] = siphash(words, KEY[0] + U64(number), KEY[1], compress, finish)


@entry
def gmac_many(context: int, memory: int, data: int, length: int, count: int) -> int:
    """Compute the GMAC of a packet `count` times; `memory` has room for nonce, rest and tag."""
    done = 0
    for _ in range(count):
        begin(context, 0, 0, 0, memory)  # another nonce
        update(context, 0, memory + 16, data, length)
        finish(context, memory + 24, memory + 16)
        done += control(context, GET_TAG, TAG_BYTES, memory + 32)
    return done


def gmac(packet: NDArray[np.uint8]) -> Callable[[int], Any]:
    """Return what computes the GMAC of a packet so many times; it equals that of `cryptography`."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    library = ctypes.CDLL(CRYPTO)
    for function in (library.EVP_CIPHER_CTX_new, library.EVP_aes_128_gcm):
        function.restype = ctypes.c_void_p
    library.EVP_EncryptInit_ex.argtypes = [ctypes.c_void_p] * 5
    context = library.EVP_CIPHER_CTX_new()
    memory = np.zeros(64, np.uint8)
    at = memory.ctypes.data
    library.EVP_EncryptInit_ex(context, library.EVP_aes_128_gcm(), None, at, at)  # a key of zeros
    gmac_many(context, at, packet.ctypes.data, len(packet), 1)
    if memory[32 : 32 + TAG_BYTES].tobytes() != AESGCM(bytes(16)).encrypt(bytes(12), b"", packet.tobytes()):
        raise ArithmeticError("GMAC: OpenSSL and cryptography differ")
    return lambda count: gmac_many(context, at, packet.ctypes.data, len(packet), count)


@entry
def crc_many(address: int, length: int, count: int) -> int:
    """Compute the CRC of the ICRC over one packet `count` times."""
    crc = 0
    for _ in range(count):
        crc = crc32(crc, address, length)
    return crc


def nanoseconds(run: Callable[[int], Any], count: int = CALLS) -> float:
    """Return the time of one of `count` calls, the best of five runs."""
    run(1)
    best = float("inf")
    for _ in range(5):
        began = time.process_time_ns()
        run(count)
        best = min(best, (time.process_time_ns() - began) / count)
    return best


def costs() -> dict[str, float]:
    """Return nanoseconds a packet for every way."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    packet = np.frombuffer(bytes(range(256)) * (PACKET // 256) + bytes(PACKET % 256), np.uint8)
    tags = np.zeros(1, np.uint64)
    siphash_many(np.arange(8, dtype=np.uint8).view(np.uint64), tags, 2, 4, 1)
    if tags[0] != VECTOR:
        raise ArithmeticError(f"SipHash-2-4: {tags[0]:#x} instead of {VECTOR:#x}")
    words, header = packet.view(np.uint64), packet[:HEADER].view(np.uint64)
    cipher, nonce, body, long = AESGCM(bytes(16)), bytes(12), packet.tobytes(), bytes(LONG)

    def gcm(message: bytes, data: bytes | None) -> Callable[[int], None]:
        def run(count: int) -> None:
            for _ in range(count):
                cipher.encrypt(nonce, message, data)

        return run

    share = PACKET / LONG
    return {
        "ICRC": nanoseconds(lambda count: crc_many(packet.ctypes.data, PACKET, count)),
        "AES-GCM, encrypted": nanoseconds(gcm(body, None)),
        "AES-GCM, encrypted, long": nanoseconds(gcm(long, None), 200) * share,
        "AES-GCM, tag only": nanoseconds(gcm(b"", body)),
        "AES-GCM, tag only, long": nanoseconds(gcm(b"", long), 200) * share,
        "GMAC from compiled code": nanoseconds(gmac(packet)),
        "GMAC of headers only": nanoseconds(gmac(packet[:HEADER])),
        "SipHash-2-4": nanoseconds(lambda count: siphash_many(words, tags, 2, 4, count)),
        "SipHash-1-3": nanoseconds(lambda count: siphash_many(words, tags, 1, 3, count)),
        "SipHash-2-4, headers only": nanoseconds(lambda count: siphash_many(header, tags, 2, 4, count)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="of the goodput run")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    gbps = goodput(Task(seconds=asked.seconds))["gbps"]
    whole = PAYLOAD * 8 / gbps
    rows = {
        name: {"ns": cost, "icrc": 0.0, "whole": cost / whole, "within": cost / whole <= MARK}
        for name, cost in costs().items()
    }
    for row in rows.values():
        row["icrc"] = row["ns"] / rows["ICRC"]["ns"]
    if asked.json:
        print(json.dumps({"gbps": gbps, "packet_ns": whole, "mark": MARK, "rows": rows}))
        return
    print(
        f"goodput {gbps:.1f} Gb/s: a packet costs {whole:.0f} ns on each side; an option may add {whole * MARK:.0f} ns"
    )
    for name, row in rows.items():
        print(f"{name:28} {row['ns']:7.0f} ns  {row['icrc']:5.2f} x ICRC  {row['whole']:6.1%} of a packet")


if __name__ == "__main__":
    main()
