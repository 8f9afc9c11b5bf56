"""What the window shows and does, without a toolkit: fully unit-tested."""
