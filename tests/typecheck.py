"""The checker that the suite puts on every annotated signature of the library."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int will do for a float
