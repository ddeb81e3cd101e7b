//! x
use crate::te::*;
use crate::sym::*;
/// x
pub struct Contraction { /// x
pub vars: Vec<VarId> }
/// x
pub fn recognise(_program: &Program, _t: TensorId) -> Option<Contraction> { None }
/// x
pub fn lower(_p: &Program, _cpu: &graphmend_targets::Cpu, _c: &Contraction, _sum: TensorId, _out: TensorId, _out_vars: &[VarId], _epilogue: Expr) -> Option<super::LoweredKernel> { None }
