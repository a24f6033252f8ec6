"""Circuits as text: expressions, state machines, modules of Verilog and their test benches."""
