"""Prints docs/support.md; it writes no file."""

from minedraft.support import ROWS, render

if __name__ == "__main__":
    print(render(ROWS), end="")
