import pytest

from openmrc.base.amounts import gbps, size_bytes, size_text
from openmrc.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65536), ("4K", 4096), ("1M", 1 << 20), ("1.5GiB", 3 << 29), ("2 tb", 2 << 40), ("0", 0)],
)
def test_suffixes_are_powers_of_1024(text: str, size: int) -> None:
    assert size_bytes(text, "--size") == size


@pytest.mark.parametrize("text", ["", "K", "-1", "1Q", "1e9", "1 0", "nan"])
def test_what_is_no_size_is_refused_by_option_and_value(text: str) -> None:
    with pytest.raises(ConfigError, match="--size") as refusal:
        size_bytes(text, "--size")
    assert repr(text) in str(refusal.value)


def test_a_size_out_of_range_is_refused_with_the_range() -> None:
    with pytest.raises(ConfigError, match=r"--size: 5K is not in 1 bytes to 4 KiB"):
        size_bytes("5K", "--size", 1, 4096)


def test_sizes_are_told_with_the_unit_that_fits() -> None:
    assert [size_text(size) for size in (0, 1023, 1536, 3 << 29, 5 << 40)] == [
        "0 bytes", "1023 bytes", "1.5 KiB", "1.5 GiB", "5.0 TiB",
    ]  # fmt: skip


def test_a_rate_in_no_time_is_zero() -> None:
    assert gbps(10**9, 1.0) == 8.0
    assert gbps(1, 0.0) == 0.0
