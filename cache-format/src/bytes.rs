//! Reading little-endian fields and tables out of bytes, bounds-checked.

/// `N` bytes at `at`.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Record `index` of a table of `N`-byte records.
pub(crate) fn record<const N: usize>(table: &[u8], index: u32) -> Option<[u8; N]> {
    array(table, usize::try_from(index).ok()?.checked_mul(N)?)
}

/// The `u16` at `at`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

/// The `u32` at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

/// The `u64` at `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// Cuts tables off the front of a section, in order.
pub(crate) struct Cutter<'a> {
    rest: &'a [u8],
}

impl<'a> Cutter<'a> {
    /// Starts at the first byte of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Cutter<'a> {
        Cutter { rest: bytes }
    }

    /// The next `count` records of `stride` bytes.
    pub(crate) fn table(&mut self, count: u32, stride: usize) -> Option<&'a [u8]> {
        let bytes = usize::try_from(count).ok()?.checked_mul(stride)?;
        let (table, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(table)
    }

    /// Whether everything has been cut off.
    pub(crate) fn done(&self) -> bool {
        self.rest.is_empty()
    }
}

/// A piece of a text pool.
pub(crate) fn text(pool: &[u8], offset: u32, bytes: u32) -> Option<&str> {
    let from = usize::try_from(offset).ok()?;
    let to = from.checked_add(usize::try_from(bytes).ok()?)?;
    core::str::from_utf8(pool.get(from..to)?).ok()
}
