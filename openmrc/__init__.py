"""openmrc: Multipath Reliable Connection (OCP MRC 1.0) in software."""

__version__ = "0.1.0"
