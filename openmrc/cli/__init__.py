"""One thin file per command. Heavy imports stay inside the functions, so that `mrc --help` is quick."""
