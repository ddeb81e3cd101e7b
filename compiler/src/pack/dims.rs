//! Sizes that the caller gives to dimensions: by name, or by the shape of an input.

use super::Options;
use crate::error::{Error, Result};
use crate::expand::{Dim, Dims, Expander, dim_key};
use crate::graph::{DimDecl, Module};

/// The options with the shapes of inputs as sizes of dimensions, all of them checked.
pub(super) fn bound(module: &Module, options: &Options) -> Result<Options> {
    let mut options = options.clone();
    for (name, shape) in std::mem::take(&mut options.shapes) {
        shaped(module, &name, &shape, &mut options.dims)?;
    }
    check(module, &options.dims)?;
    Ok(options)
}

/// Binds the dimensions of one input.
fn shaped(module: &Module, name: &str, shape: &[u64], dims: &mut Dims) -> Result<()> {
    let inputs = &module.main.inputs;
    let fail = |text: String| Err(Error::Options(text));
    let names = || inputs.iter().map(|id| module.value_name(*id)).collect::<Vec<_>>().join(", ");
    let found = match name {
        _ if inputs.is_empty() => return fail("a shape is given, but the model has no inputs".into()),
        "" if inputs.len() == 1 => inputs.first(),
        "" => return fail(format!("a shape needs the name of its input: the model has {}", names())),
        _ => inputs.iter().find(|id| module.value(**id).name == name),
    };
    let Some(id) = found else { return fail(format!("there is no input '{name}', but {}", names())) };
    let name = module.value_name(*id);
    let ty = &module.value(*id).ty;
    let Some(declared) = ty.shape() else { return fail(format!("input {name} is {ty}: it takes no shape")) };
    if declared.len() != shape.len() {
        return fail(format!("input {name} is {ty}: a shape of {} axes does not fit", shape.len()));
    }
    for (axis, (d, n)) in declared.iter().zip(shape).enumerate() {
        if let DimDecl::Fixed(size) = d {
            if size != n {
                return fail(format!("input {name} is {ty}: axis {axis} cannot be {n}"));
            }
            continue;
        }
        let key = dim_key(d, &module.value(*id).name, axis);
        match dims.insert(key.clone(), Dim::Fixed(*n)) {
            Some(before) if before != Dim::Fixed(*n) => {
                return fail(format!("dimension '{key}' is given two sizes: {n} by axis {axis} of input {name}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that the dimensions that are given sizes are the model's, and that the sizes are some.
fn check(module: &Module, dims: &Dims) -> Result<()> {
    for (name, dim) in dims {
        let (least, most) = match dim {
            Dim::Fixed(n) => (*n, *n),
            Dim::Range(a, b) => (*a, *b),
        };
        if least > most || most < 1 || i64::try_from(most).is_err() {
            return Err(Error::Options(format!("dimension '{name}': sizes are from 1 to {}", i64::MAX)));
        }
    }
    let mut inputs = Expander::new(dims);
    if dims.is_empty() || inputs.inputs(module).is_err() {
        // What is wrong with the inputs is told when the graph is expanded.
        return Ok(());
    }
    let mut known: Vec<&str> = inputs.symbol_names().collect();
    known.sort_unstable();
    match dims.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) if known.is_empty() => {
            Err(Error::Options(format!("no input has a dimension '{name}': the sizes of all inputs are fixed")))
        }
        Some(name) => Err(Error::Options(format!("no input has a dimension '{name}', but {}", known.join(", ")))),
    }
}
