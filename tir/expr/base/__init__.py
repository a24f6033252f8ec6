"""What every node of the IR is made of: data types, declared parts, and room for deep recursion."""
