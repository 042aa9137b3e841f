"""What this machine has: host memory and devices. One file per backend."""
