"""Read text files of any size line by line, with a limit on the length of a line."""

from collections.abc import Iterator
from pathlib import Path

from openmrc.errors import ConfigError

LONGEST_LINE = 1 << 16  # bytes; limits the memory for a file without line ends


def numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, line without its end); numbers begin at 1."""
    try:
        with path.open("rb") as file:
            for number in range(1, 1 << 62):
                line = file.readline(LONGEST_LINE + 1)
                if not line:
                    return
                if len(line) > LONGEST_LINE:
                    raise ConfigError(f"{path}:{number}: a line of more than {LONGEST_LINE} bytes")
                yield number, line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}:{number}: not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
