//! Shaders of the user: reads what they say about their units, and checks that they fit the interface.
//!
//! The compiler's messages name file, line and column. What this module finds missing, it names with what is to be written.

use crate::card::shader::Shader;
use crate::error::Error;
use std::path::Path;
use wgpu_core::naga::{
    AddressSpace, Expression, GlobalVariable, Literal, Module, ResourceBinding, ShaderStage, StorageAccess,
    front::wgsl,
    valid::{Capabilities, ValidationFlags, Validator},
};
use wgpu_types::ShaderRuntimeChecks;

/// Greatest size of a file, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// Greatest size of a unit, in bytes.
const UNIT_MAX: u32 = 1 << 24;

/// Returns the checks that compiled shaders make: an index beyond a buffer reaches none of the memory behind it.
pub(super) fn checks() -> ShaderRuntimeChecks {
    ShaderRuntimeChecks::checked()
}

/// Reads the file of a shader.
///
/// # Errors
/// [`Error::Kernel`] if the file cannot be read, is no shader, or does not fit the interface.
pub(super) fn read(path: &Path) -> Result<Shader, Error> {
    let failed = |message: String| Error::Kernel { path: path.to_owned(), message };
    let size = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if size > FILE_MAX {
        return Err(failed(format!("the file has {size} bytes, and a shader can have {FILE_MAX}")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    parse(text, &path.display().to_string()).map_err(failed)
}

/// Reads the text of a shader; messages of the compiler name its file.
fn parse(text: String, name: &str) -> Result<Shader, String> {
    let module = wgsl::parse_str(&text).map_err(|error| error.emit_to_string_with_path(&text, name))?;
    Validator::new(ValidationFlags::all(), Capabilities::empty())
        .validate(&module)
        .map_err(|error| error.emit_to_string_with_path(&text, name))?;
    let entries: Vec<_> =
        module.entry_points.iter().filter(|entry| entry.stage == ShaderStage::Compute).collect();
    let [entry] = entries[..] else {
        return Err(format!(
            "there are {} compute entry points, and there must be one, 'main'",
            entries.len()
        ));
    };
    if entry.name != "main" {
        return Err(format!("the compute entry point is '{}', and must be 'main'", entry.name));
    }
    let [group, 1, 1] = entry.workgroup_size else {
        return Err(
            "the workgroup has several dimensions: write @workgroup_size(64), or another number".into()
        );
    };
    let read = AddressSpace::Storage { access: StorageAccess::LOAD };
    let write = AddressSpace::Storage { access: StorageAccess::LOAD | StorageAccess::STORE };
    check_binding(&module, 0, read, "var<storage, read> input: array<...>;")?;
    check_binding(&module, 1, write, "var<storage, read_write> output: array<...>;")?;
    check_binding(&module, 2, AddressSpace::Uniform, "var<uniform> block: Block;")?;
    check_no_more(&module)?;
    let (input_bytes, output_bytes) = (unit(&module, "INPUT_BYTES")?, unit(&module, "OUTPUT_BYTES")?);
    Ok(Shader { text, input_bytes, output_bytes, group })
}

/// Returns the size of a unit that a constant of the shader names, in bytes.
fn unit(module: &Module, name: &str) -> Result<usize, String> {
    let constant = module.constants.iter().find(|(_, constant)| constant.name.as_deref() == Some(name));
    let Some((_, constant)) = constant else {
        return Err(format!("the size of a unit is missing: const {name}: u32 = ...;"));
    };
    match module.global_expressions[constant.init] {
        Expression::Literal(Literal::U32(bytes)) if (4..=UNIT_MAX).contains(&bytes) && bytes % 4 == 0 => {
            Ok(bytes as usize)
        }
        _ => Err(format!("{name} must be a u32, a multiple of 4, and at most {UNIT_MAX}")),
    }
}

/// Checks that a variable has a binding, and is of the right kind, if there is one: a shader may leave out what it does not
/// need, except for input and output.
fn check_binding(module: &Module, number: u32, space: AddressSpace, wanted: &str) -> Result<(), String> {
    let wanted = format!("@group(0) @binding({number}) {wanted}");
    match variables(module).find(|(binding, _)| *binding == ResourceBinding { group: 0, binding: number }) {
        Some((_, variable)) if variable.space == space => Ok(()),
        Some(_) => Err(format!("binding {number} is of another kind: write {wanted}")),
        None if space == AddressSpace::Uniform => Ok(()),
        None => Err(format!("a binding is missing: {wanted}")),
    }
}

fn check_no_more(module: &Module) -> Result<(), String> {
    match variables(module).find(|(binding, _)| binding.group != 0 || binding.binding > 2) {
        None => Ok(()),
        Some((binding, variable)) => Err(format!(
            "'{}' is at @group({}) @binding({}): there are bindings 0 to 2 of group 0",
            variable.name.as_deref().unwrap_or_default(),
            binding.group,
            binding.binding
        )),
    }
}

fn variables(module: &Module) -> impl Iterator<Item = (ResourceBinding, &GlobalVariable)> {
    module.global_variables.iter().filter_map(|(_, variable)| Some((variable.binding?, variable)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("../../examples/scale.wgsl");

    #[test]
    fn a_shader_tells_its_sizes() {
        let shader = parse(GOOD.into(), "scale.wgsl").unwrap();
        assert_eq!((shader.input_bytes, shader.output_bytes, shader.group), (4, 4, 64));
        // Constants are expressions, and the number of units may be left out.
        let text = "const INPUT_BYTES: u32 = 2u * 4u;\nconst OUTPUT_BYTES = 4u;
            @group(0) @binding(0) var<storage, read> pairs: array<vec2f>;
            @group(0) @binding(1) var<storage, read_write> halves: array<f32>;
            @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3u) { halves[id.x] = pairs[id.x].y; }";
        let shader = parse(text.into(), "x").unwrap();
        assert_eq!((shader.input_bytes, shader.output_bytes, shader.group), (8, 4, 32));
    }

    #[test]
    fn wrong_shaders_are_refused_with_what_is_wrong() {
        let without = |line: &str| {
            assert!(GOOD.contains(line), "{line}");
            GOOD.replace(line, "")
        };
        for (text, parts) in [
            (GOOD.replace("output[", "outptu["), ["scale.wgsl:", "outptu"]),
            (GOOD.replace("2.5 *", "2u *"), ["scale.wgsl:", ""]),
            (without("const INPUT_BYTES: u32 = 4;"), ["is missing", "const INPUT_BYTES: u32"]),
            (
                GOOD.replace("OUTPUT_BYTES: u32 = 4", "OUTPUT_BYTES: u32 = 6"),
                ["OUTPUT_BYTES", "multiple of 4"],
            ),
            (GOOD.replace("INPUT_BYTES: u32 = 4", "INPUT_BYTES: f32 = 4"), ["INPUT_BYTES", "u32"]),
            (GOOD.replace("fn main", "fn mein"), ["'mein'", "'main'"]),
            (
                without("@compute @workgroup_size(64)\n").replace("@builtin(global_invocation_id) ", ""),
                ["0 compute entry points", "'main'"],
            ),
            (GOOD.replace("size(64)", "size(8, 8)"), ["several dimensions", ""]),
            (GOOD.replace("@binding(0)", "@binding(3)"), ["is missing", "@binding(0) var<storage, read>"]),
            (
                GOOD.replace("read_write", "read").replace("    output[", "    // output["),
                ["binding 1", "read_write"],
            ),
            (
                GOOD.replace("<storage, read> input", "<storage, read_write> input"),
                ["binding 0", "storage, read>"],
            ),
            (
                format!("{GOOD}@group(1) @binding(0) var<storage, read> more: array<f32>;"),
                ["'more'", "@group(1)"],
            ),
        ] {
            let message = parse(text.clone(), "scale.wgsl").unwrap_err();
            assert!(parts.iter().all(|part| message.contains(part)), "{message} of {text}");
        }
    }

    #[test]
    fn files_are_named() {
        let missing = read(Path::new("/nonexistent.wgsl")).unwrap_err().to_string();
        assert!(missing.starts_with("/nonexistent.wgsl: "), "{missing}");
    }
}
