//! Nothing to use: `tests/` reads the manifests and ARCHITECTURE.md, and asks that they say the same.

#![forbid(unsafe_code)]
