//! What memory a model uses. Alone in its program: other tests would change the list of mappings.
#![cfg(target_os = "linux")]

mod common;

use common::*;
use graphmend_runtime::{Model, TensorRef, Trust};

/// Mappings of this process that can be executed, as lines of `/proc/self/maps`. None can be written, too.
fn executable() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let rights = |line: &str| line.split_ascii_whitespace().nth(1).unwrap().to_string();
    for line in maps.lines() {
        assert!(!(rights(line).contains('w') && rights(line).contains('x')), "{line}");
    }
    maps.lines().filter(|l| rights(l).contains('x')).map(str::to_string).collect()
}

/// Whether the list shows anonymous memory that was made executable, beside some that is read-only. User-mode emulators
/// make up their own list, and put the two into one line.
fn list_is_true() -> bool {
    let before = executable();
    let anonymous = || memmap2::MmapMut::map_anon(4096).unwrap();
    let read_only = anonymous().make_read_only().unwrap();
    let code = anonymous().make_exec().unwrap();
    let during = executable();
    drop((read_only, code));
    before != during
}

#[test]
fn code_has_memory_of_its_own_that_is_never_writable() {
    let before = executable();
    let model = Model::from_bytes(&bytes(&doubling_model()), Trust::Unsigned).unwrap();
    let during = executable();
    let mut session = model.session().unwrap();
    session.run(&[TensorRef::new(&[21i32], &[1])]).unwrap();
    assert_eq!(session.output(0).unwrap().as_slice::<i32>().unwrap(), [42]);
    assert_eq!(executable(), during);
    if list_is_true() {
        assert_ne!(before, during, "the code is in executable memory");
    }
    drop(session);
    drop(model);
    assert_eq!(executable(), before);
}
