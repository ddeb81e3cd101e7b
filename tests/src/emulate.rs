//! `graphmend-run` built for other processors, under QEMU.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use graphmend::npy::{self, Array};
use graphmend::targets::Arch;

use crate::reference::Case;

/// A machine that QEMU emulates.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Its instruction set.
    pub arch: Arch,
    /// QEMU's name of its CPU.
    pub cpu: &'static str,
}

impl Machine {
    /// `graphmend-run` on this machine.
    ///
    /// # Errors
    /// A program that was not built, with the command that does it.
    pub fn graphmend_run(&self) -> Result<Command> {
        let (qemu, sysroot, variable) = match self.arch {
            Arch::Aarch64 => ("qemu-aarch64", "/usr/aarch64-linux-gnu", "GRAPHMEND_RUN_AARCH64"),
            Arch::Riscv64 => ("qemu-riscv64", "/usr/riscv64-linux-gnu", "GRAPHMEND_RUN_RISCV64"),
            Arch::Arm => ("qemu-arm", "/usr/arm-linux-gnueabihf", "GRAPHMEND_RUN_ARM"),
            other => anyhow::bail!("nothing emulates {}", other.name()),
        };
        let program = std::env::var_os(variable).with_context(|| {
            format!("{variable} does not name a program: these tests are run by scripts/test-cross.sh")
        })?;
        ensure!(Path::new(&program).is_file(), "{variable}: there is no {}", Path::new(&program).display());
        let mut command = Command::new(qemu);
        command.args(["-cpu", self.cpu, "-L", sysroot]).arg(program);
        Ok(command)
    }

    /// Runs one set of a case; all outputs.
    ///
    /// # Errors
    /// What the program says when it fails.
    pub fn run(&self, cache: &Path, case: &Case, set: usize, folder: &Path) -> Result<Vec<Array>> {
        let mut command = self.graphmend_run()?;
        command.arg("run").arg(cache);
        let named = |name: &str, file: &Path| {
            let mut arg = OsString::from(format!("{name}="));
            arg.push(file);
            arg
        };
        for (k, name) in case.inputs.iter().enumerate() {
            command.arg("-i").arg(named(name, &case.input_file(set, k)));
        }
        let files: Vec<_> = (0..case.outputs.len()).map(|k| folder.join(format!("output_{k}.npy"))).collect();
        for (file, name) in files.iter().zip(&case.outputs) {
            command.arg("-o").arg(named(name, file));
        }
        succeed(&mut command)?;
        files.iter().map(|file| npy::read(file).with_context(|| file.display().to_string())).collect()
    }
}

/// Runs a program that must succeed.
///
/// # Errors
/// A program that cannot be started, or its messages.
pub fn succeed(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("{}", Path::new(command.get_program()).display()))?;
    ensure!(output.status.success(), "{command:?}\n{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(output)
}
