"""What it is worth to pair workers by what lies between them."""
