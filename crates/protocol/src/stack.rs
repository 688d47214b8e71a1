//! Where a worker's memory holds its call stack.

use serde::{Deserialize, Serialize};

/// The location of a worker's call stack. The preloader reports it and could lie, which affects only its own pool's
/// output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "runtime", rename_all = "lowercase")]
pub enum StackSource {
    Php(Layout),
}

/// Offsets in PHP's structures (`struct forkyard_shim_stack`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(C)]
pub struct Layout {
    /// The address of `executor_globals.current_execute_data`.
    pub current_call: u64,
    /// In `zend_execute_data`: `opline`.
    pub call_opline: u32,
    /// `func`.
    pub call_function: u32,
    /// `This.u1.type_info`.
    pub call_info: u32,
    /// `prev_execute_data`.
    pub call_previous: u32,
    /// In `zend_function`: `type`.
    pub function_type: u32,
    /// `common.function_name`.
    pub function_name: u32,
    /// `op_array.filename`.
    pub function_file: u32,
    /// In `zend_op`: `lineno`.
    pub opline_line: u32,
    /// In `zend_string`: `len`.
    pub string_length: u32,
    /// `val`.
    pub string_text: u32,
    /// The flag of a file or eval, as opposed to a function.
    pub info_code: u32,
    /// The flag of a call that doesn't come from PHP code.
    pub info_top: u32,
    /// `ZEND_INTERNAL_FUNCTION`'s bit in `function_type`: the function has no file.
    pub type_internal: u32,
}
