"""One thin file per command. Functions import heavy modules themselves, so that `mrc --help` starts fast."""
