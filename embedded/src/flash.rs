//! A serial NOR flash chip: identification and reads.

use core::fmt;

use embedded_hal::spi::{Operation, SpiDevice};

use crate::Error;

/// The command that reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadCommand {
    /// 0x03, with four address bytes 0x13: data follow the address at once. Chips limit its clock, mostly to 33 to 50 MHz.
    Plain,
    /// 0x0B, with four address bytes 0x0C: a byte comes between, for any clock that the chip has.
    #[default]
    Fast,
}

impl ReadCommand {
    /// The command's code, and the bytes between address and data.
    fn code(self, long: bool) -> (u8, usize) {
        match (self, long) {
            (ReadCommand::Plain, false) => (0x03, 0),
            (ReadCommand::Plain, true) => (0x13, 0),
            (ReadCommand::Fast, false) => (0x0b, 1),
            (ReadCommand::Fast, true) => (0x0c, 1),
        }
    }
}

/// What a chip answers to 0x9F (JEDEC).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id {
    /// Manufacturer: 0xEF Winbond, 0xC2 Macronix, 0x20 Micron, …
    pub manufacturer: u8,
    /// Family, the manufacturer's own.
    pub family: u8,
    /// Size, as most manufacturers code it.
    pub size: u8,
}

impl Id {
    /// Bytes of the chip. The code is a power of two; after 0x19 (32 MiB) some manufacturers go on with 0x1A and others, who read
    /// it as decimal, with 0x20.
    pub fn capacity(self) -> Option<u64> {
        match self.size {
            code @ 0x10..=0x1f => Some(1 << code),
            code @ 0x20..=0x25 => Some(1 << (code - 6)),
            _ => None,
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x} {:02x} {:02x}", self.manufacturer, self.family, self.size)
    }
}

/// Bytes that three address bytes reach.
const SHORT: u64 = 1 << 24;

/// A serial NOR flash chip on a bus.
#[derive(Debug)]
pub struct NorFlash<S> {
    spi: S,
    id: Id,
    capacity: u64,
    command: ReadCommand,
}

impl<S: SpiDevice> NorFlash<S> {
    /// Asks the chip who it is and how large.
    ///
    /// # Errors
    /// [`Error::NoChip`] if nothing answers, [`Error::UnknownSize`] if the answer has no size in it.
    pub fn new(spi: S) -> Result<NorFlash<S>, Error<S::Error>> {
        let mut flash = NorFlash::with_capacity(spi, 0)?;
        flash.capacity = flash.id.capacity().ok_or(Error::UnknownSize(flash.id))?;
        Ok(flash)
    }

    /// The same for a chip whose size is known otherwise, in bytes.
    ///
    /// # Errors
    /// [`Error::NoChip`] if nothing answers.
    pub fn with_capacity(mut spi: S, bytes: u64) -> Result<NorFlash<S>, Error<S::Error>> {
        let mut answer = [0; 3];
        spi.transaction(&mut [Operation::Write(&[0x9f]), Operation::Read(&mut answer)]).map_err(Error::Bus)?;
        let [manufacturer, family, size] = answer;
        // A line that nobody drives.
        if answer == [0; 3] || answer == [0xff; 3] {
            return Err(Error::NoChip);
        }
        let id = Id { manufacturer, family, size };
        Ok(NorFlash { spi, id, capacity: bytes, command: ReadCommand::default() })
    }

    /// Reads by this command from now on.
    pub fn set_command(&mut self, command: ReadCommand) {
        self.command = command;
    }

    /// Who the chip is.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Bytes of the chip.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Gives the bus back.
    pub fn release(self) -> S {
        self.spi
    }

    /// Whether bytes lie inside the chip. At its end it would begin anew at its start.
    pub(crate) fn check(&self, address: u32, bytes: u64) -> Result<(), Error<S::Error>> {
        if u64::from(address).checked_add(bytes).is_none_or(|end| end > self.capacity) {
            return Err(Error::OutOfRange { address, bytes, capacity: self.capacity });
        }
        Ok(())
    }

    /// Reads bytes. Chips of more than 16 MiB are read with four address bytes, without a change of the chip's mode.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] before anything is read, [`Error::Bus`].
    pub fn read(&mut self, address: u32, into: &mut [u8]) -> Result<(), Error<S::Error>> {
        self.check(address, into.len() as u64)?;
        if into.is_empty() {
            return Ok(());
        }
        let long = self.capacity > SHORT;
        let (code, between) = self.command.code(long);
        let [a, b, c, d] = address.to_be_bytes();
        let head: &[u8] = if long { &[code, a, b, c, d, 0] } else { &[code, b, c, d, 0] };
        let head = head.get(..head.len() - 1 + between).unwrap_or_default();
        self.spi.transaction(&mut [Operation::Write(head), Operation::Read(into)]).map_err(Error::Bus)
    }
}
