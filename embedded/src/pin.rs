//! A pin that is high while a model runs: for an oscilloscope, or to measure current by.

use core::fmt;

use embedded_hal::digital::OutputPin;
use graphmend_runtime::{Error, Session, TensorRef, WeightSource};

/// A pin, low but in runs.
#[derive(Debug)]
pub struct RunPin<P>(P);

/// Why a run with a pin failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinError<E> {
    /// The pin. If it could not be raised, the model did not run.
    Pin(E),
    /// The run.
    Run(Error),
}

impl<E: fmt::Debug> fmt::Display for PinError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PinError::Pin(error) => write!(f, "the pin reports {error:?}"),
            PinError::Run(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug> core::error::Error for PinError<E> {}

impl<P: OutputPin> RunPin<P> {
    /// Takes a pin and lowers it.
    ///
    /// # Errors
    /// The pin's.
    pub fn new(mut pin: P) -> Result<RunPin<P>, P::Error> {
        pin.set_low()?;
        Ok(RunPin(pin))
    }

    /// Gives the pin back.
    pub fn release(self) -> P {
        self.0
    }

    /// Runs a session with the pin raised. It is lowered if the run fails, too.
    ///
    /// # Errors
    /// The run's, else the pin's.
    pub fn run(&mut self, session: &mut Session<'_>, inputs: &[TensorRef<'_>]) -> Result<(), PinError<P::Error>> {
        self.around(|| session.run(inputs))
    }

    /// The same for [`Session::run_streamed`].
    ///
    /// # Errors
    /// The run's, else the pin's.
    pub fn run_streamed(
        &mut self,
        session: &mut Session<'_>,
        inputs: &[TensorRef<'_>],
        weights: &mut dyn WeightSource,
        window: &mut [u8],
    ) -> Result<(), PinError<P::Error>> {
        self.around(|| session.run_streamed(inputs, weights, window))
    }

    fn around(&mut self, run: impl FnOnce() -> Result<(), Error>) -> Result<(), PinError<P::Error>> {
        self.0.set_high().map_err(PinError::Pin)?;
        let result = run();
        let lowered = self.0.set_low();
        result.map_err(PinError::Run)?;
        lowered.map_err(PinError::Pin)
    }
}
