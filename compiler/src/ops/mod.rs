//! What each ONNX operator means: its expansion into tensor expressions, one file an operator family.
//!
//! An expansion gets a [`Call`] and builds the outputs with [`Cx`]. Output shapes follow from the expressions. What is not
//! supported is refused by naming what is missing; nothing is computed approximately or silently left out.

mod activation;
mod arg;
mod attention;
mod axes;
mod batch_norm;
mod binary;
mod call;
mod cast;
mod contract;
mod contrib;
mod contrib_attention;
mod contrib_attributes;
mod contrib_forms;
mod contrib_weights;
mod conv;
mod counted;
mod cumulative;
mod deform;
mod det;
mod einsum;
mod embed_norm;
mod experts;
mod features;
mod fft;
mod fourier;
mod gather;
mod grid;
mod group_norm;
mod group_query;
mod heads;
mod integer;
mod interpolate;
mod kernels;
mod layer_norm;
mod layout;
mod letters;
mod linear_attention;
mod loss;
mod masks;
mod moments;
mod narrow;
mod nary;
mod norm;
mod operand;
mod pad;
mod pool;
mod pow;
mod qlinear;
mod quantize;
mod random;
mod range;
mod recurrent;
mod recurrent_activation;
mod recurrent_bytes;
mod recurrent_kernel;
mod reduce;
mod regex;
mod resize;
mod roi;
mod rotary;
mod scalar;
mod scatter;
mod select;
mod shape;
mod signal;
mod sizes;
mod softmax;
mod strings;
mod text;
mod text_numbers;
mod training;
mod trees;
mod unary;
mod unfold;
mod window;

pub(crate) use attention::Flex;
pub use call::{AttrTensor, AttrValue, Call};
pub use narrow::{stored, unpack};
pub use strings::stored as stored_strings;

use crate::te::{Cx, OpError, OpResult};
use graphmend_cache_format::MAX_RANK;

/// One operator's expansion; gives one tensor for each output, in order (trailing unused ones may be left out).
type Expand = fn(&mut Cx, &Call) -> OpResult;

/// Looks an operator up in the families' tables: `(domain, operator, expansion)`.
fn find(domain: &str, op: &str) -> Option<Expand> {
    const TABLES: &[&[(&str, &str, Expand)]] = &[
        activation::TABLE,
        arg::TABLE,
        attention::TABLE,
        batch_norm::TABLE,
        binary::TABLE,
        cast::TABLE,
        contract::TABLE,
        contrib::TABLE,
        contrib_attention::TABLE,
        contrib_forms::TABLE,
        contrib_weights::TABLE,
        conv::TABLE,
        counted::TABLE,
        cumulative::TABLE,
        deform::TABLE,
        det::TABLE,
        einsum::TABLE,
        fourier::TABLE,
        embed_norm::TABLE,
        experts::TABLE,
        features::TABLE,
        gather::TABLE,
        grid::TABLE,
        group_norm::TABLE,
        group_query::TABLE,
        integer::TABLE,
        layer_norm::TABLE,
        layout::TABLE,
        linear_attention::TABLE,
        loss::TABLE,
        masks::TABLE,
        nary::TABLE,
        norm::TABLE,
        pad::TABLE,
        pool::TABLE,
        pow::TABLE,
        qlinear::TABLE,
        quantize::TABLE,
        random::TABLE,
        range::TABLE,
        recurrent::TABLE,
        reduce::TABLE,
        resize::TABLE,
        roi::TABLE,
        rotary::TABLE,
        scatter::TABLE,
        select::TABLE,
        shape::TABLE,
        signal::TABLE,
        softmax::TABLE,
        strings::TABLE,
        text::TABLE,
        training::TABLE,
        trees::TABLE,
        unary::TABLE,
        unfold::TABLE,
    ];
    let domain = if domain == "ai.onnx" { "" } else { domain };
    TABLES.iter().flat_map(|t| t.iter()).find(|(d, o, _)| *d == domain && *o == op).map(|(_, _, f)| *f)
}

/// Is there an expansion for the operator at all?
pub fn is_known(domain: &str, op: &str) -> bool {
    find(domain, op).is_some()
}

/// Expands one operator.
pub fn expand(cx: &mut Cx, call: &Call) -> OpResult {
    if call.domain == "com.microsoft" {
        contrib_attributes::check(call)?;
    }
    let text = call.inputs.iter().flatten().any(|t| strings::is_text(cx, *t));
    let made = match find(&call.domain, &call.op) {
        Some(f) if text => strings::expand(cx, call, f),
        Some(f) if call.inputs.iter().flatten().any(|t| cx.narrow.contains_key(t)) => narrow::expand(cx, call, f),
        Some(f) => f(cx, call),
        None => Err(OpError::Unsupported("the operator is not supported".into())),
    }?;
    match made.iter().map(|t| cx.rank(*t)).find(|rank| *rank > MAX_RANK) {
        Some(rank) => {
            Err(OpError::Unsupported(format!("a result of rank {rank} is not supported, the most is {MAX_RANK}")))
        }
        None => Ok(made),
    }
}

#[cfg(test)]
mod arithmetic_tests;
#[cfg(test)]
mod attention_tests;
#[cfg(test)]
mod contrib_tests;
#[cfg(test)]
mod features_tests;
#[cfg(test)]
mod image_tests;
#[cfg(test)]
mod index_tests;
#[cfg(test)]
mod layout_tests;
#[cfg(test)]
mod narrow_tests;
#[cfg(test)]
mod recurrent_bytes_tests;
#[cfg(test)]
mod recurrent_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod text_tests;
#[cfg(test)]
mod trees_tests;
#[cfg(test)]
mod window_tests;
