"""The command line: one file per command; words in, exit status out. No decisions about probes are made here."""
