"""Functions as circuits: integers with as many wires as they need, memories, and blocks, loops and branches of both."""
