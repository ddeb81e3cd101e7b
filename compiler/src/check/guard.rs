//! Code that may panic, recurse deeply or never end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Once, mpsc};
use std::thread;
use std::time::Duration;

/// The name of the threads whose panics are caught.
const THREAD: &str = "graphmend-check";
/// Their stacks: optimisers walk graphs recursively.
const STACK: usize = 256 << 20;

/// Runs `f` on a thread of its own. A panic becomes an error with its message; a thread that takes longer than `patience` is
/// left to itself.
pub(super) fn within<T: Send + 'static>(
    patience: Duration,
    f: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    // What is caught and reported is not printed as a panic too.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if thread::current().name() != Some(THREAD) {
                before(info);
            }
        }));
    });
    let (sender, receiver) = mpsc::channel();
    let work = move || {
        let caught = catch_unwind(AssertUnwindSafe(f));
        // Nobody listens any more after too long a time.
        let _ = sender.send(caught.unwrap_or_else(|panic| Err(format!("it panicked: {}", message(&*panic)))));
    };
    thread::Builder::new()
        .name(THREAD.to_owned())
        .stack_size(STACK)
        .spawn(work)
        .map_err(|e| format!("no thread could be started: {e}"))?;
    receiver.recv_timeout(patience).unwrap_or_else(|_| Err(format!("it gave no answer in {} s", patience.as_secs())))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "no message",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        let long = Duration::from_secs(60);
        assert_eq!(within(long, || Ok(1)), Ok(1));
        assert_eq!(within::<()>(long, || panic!("no {}", 7)), Err("it panicked: no 7".into()));
        assert_eq!(within::<()>(long, || panic!("no")), Err("it panicked: no".into()));
    }

    #[test]
    fn what_does_not_end_is_left() {
        let never = || loop {
            thread::park();
        };
        assert_eq!(within::<()>(Duration::ZERO, never), Err("it gave no answer in 0 s".into()));
    }
}
