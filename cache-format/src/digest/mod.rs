//! BLAKE3, in parts.
//!
//! With feature `alloc` it is the crate `blake3`, which is fast. Without, it is a small one of our own: a fifth of its code, for
//! firmware.

use crate::Digest;

#[cfg(any(test, not(feature = "alloc")))]
mod small;

#[cfg(feature = "alloc")]
type Inner = blake3::Hasher;
#[cfg(not(feature = "alloc"))]
type Inner = small::Hasher;

/// The digest of bytes that come in parts.
#[derive(Clone, Debug, Default)]
pub struct Hasher(Inner);

impl Hasher {
    /// Of no bytes yet.
    pub fn new() -> Hasher {
        Hasher::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes so far.
    pub fn finish(&self) -> Digest {
        #[cfg(feature = "alloc")]
        return *self.0.finalize().as_bytes();
        #[cfg(not(feature = "alloc"))]
        self.0.finish()
    }
}

/// The digest of bytes.
pub fn digest(bytes: &[u8]) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update(bytes);
    hasher.finish()
}
