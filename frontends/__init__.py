"""Frontends read other people's programs into graphs; each loads the library of its format when it is used."""
