"""The offline archive's format: parts, manifests, their chain, and signatures."""
