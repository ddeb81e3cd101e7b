//! A serial NOR flash chip that answers as the data sheets say.

use embedded_hal::spi::{Error, ErrorKind, ErrorType, Operation, SpiDevice};

/// What the bus reports when it is told to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault;

impl Error for Fault {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

/// The chip. Bytes that were never written are 0xff.
#[derive(Debug)]
pub struct Chip {
    id: [u8; 3],
    size: u64,
    from: u32,
    content: Vec<u8>,
    /// Transactions until the bus fails.
    pub fail_after: Option<u32>,
}

impl Chip {
    /// A chip with content at an address. What reaches over its end lies at its start.
    pub fn with(id: [u8; 3], from: u32, content: &[u8]) -> Chip {
        let code = if (0x20..0x26).contains(&id[2]) { id[2] - 6 } else { id[2] };
        let size = if (0x10..0x20).contains(&code) { 1 << code } else { 8 << 20 };
        Chip { id, size, from, content: content.to_vec(), fail_after: None }
    }

    fn byte(&self, address: u64) -> u8 {
        let at = (address + self.size - u64::from(self.from) % self.size) % self.size;
        usize::try_from(at).ok().and_then(|at| self.content.get(at)).copied().unwrap_or(0xff)
    }
}

impl ErrorType for Chip {
    type Error = Fault;
}

impl SpiDevice for Chip {
    fn transaction(&mut self, operations: &mut [Operation<'_, u8>]) -> Result<(), Fault> {
        if let Some(left) = &mut self.fail_after {
            *left = left.checked_sub(1).ok_or(Fault)?;
        }
        // Chip select is low during all of it: what is written is one command, what is read its answer.
        let mut command = vec![];
        let mut given = 0u64;
        for operation in operations {
            match operation {
                Operation::Write(bytes) => {
                    assert_eq!(given, 0, "a command after its answer");
                    command.extend_from_slice(bytes);
                }
                Operation::Read(into) => {
                    for byte in into.iter_mut() {
                        *byte = self.answer(&command, given);
                        given += 1;
                    }
                }
                other => panic!("no flash chip is used by {other:?}"),
            }
        }
        Ok(())
    }
}

impl Chip {
    fn answer(&self, command: &[u8], at: u64) -> u8 {
        let short = |bytes: &[u8]| {
            assert!(self.size <= 1 << 24, "three address bytes do not reach all of this chip");
            bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b))
        };
        let long = |bytes: &[u8]| bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let from = match command {
            [0x9f] => return self.id[usize::try_from(at).unwrap() % 3],
            [0x03, a @ ..] if a.len() == 3 => short(a),
            [0x0b, a @ .., _dummy] if a.len() == 3 => short(a),
            [0x13, a @ ..] if a.len() == 4 => long(a),
            [0x0c, a @ .., _dummy] if a.len() == 4 => long(a),
            other => panic!("no command of a flash chip: {other:02x?}"),
        };
        self.byte(from + at)
    }
}
