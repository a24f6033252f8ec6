"""This package has the functions of the array namespace, a file for each family."""
