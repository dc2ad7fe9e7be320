"""The test ring: a real Kubernetes on one machine. Start reading at cluster.py."""
