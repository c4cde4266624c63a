// Range cell migration correction and azimuth filter, along rows of one Doppler frequency each.
//
// A cell is fetched from where its range migrated to, by a windowed sinc of 8 samples; there are 64 of these, for 64
// positions between two samples. Then the azimuth filter turns its phase. What depends on a row's frequency was computed on
// the host with twice the precision: tables for each row, and for each run of 64 cells in it.

struct Parameters {
    rows: u32,
    columns: u32,
    // Runs of a row.
    runs: u32,
}

struct Run {
    // Phase of the azimuth filter at the run's first cell.
    phase: vec2f,
    // Whole part and rest of that cell's migration, in 64ths of a cell.
    shift: u32,
    rest: f32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read> kernels: array<f32>;
@group(0) @binding(1) var<storage, read> gains: array<f32>;
// Growth of the migration with each cell in 64ths of a cell, by rows; less than 0 for a row that becomes zero.
@group(0) @binding(2) var<storage, read> growths: array<f32>;
// Phases of the azimuth filter within a run, relative to its first cell, 64 for each row.
@group(0) @binding(3) var<storage, read> steps: array<vec2f>;
@group(0) @binding(4) var<storage, read> runs: array<Run>;
@group(0) @binding(5) var<storage, read> input: array<vec2f>;
@group(0) @binding(6) var<storage, read_write> output: array<vec2f>;

fn times(a: vec2f, b: vec2f) -> vec2f {
    return vec2f(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

@compute @workgroup_size(64)
fn correct(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
    let number = id.x + id.y * groups.x * 64u;
    if number >= parameters.rows * parameters.columns {
        return;
    }
    let row = number / parameters.columns;
    let cell = number % parameters.columns;
    let growth = growths[row];
    if growth < 0.0 {
        output[number] = vec2f();
        return;
    }
    let run = runs[row * parameters.runs + cell / 64u];
    let place = cell % 64u;
    let shift = run.shift + u32(floor(run.rest + f32(place) * growth + 0.5));
    let kernel = shift % 64u;
    // Sample of the kernel's first weight is three before the cell's position.
    let first = cell + shift / 64u;
    var sum = vec2f();
    for (var tap = 0u; tap < 8u; tap++) {
        let at = first + tap;
        if at >= 3u && at - 3u < parameters.columns {
            sum += kernels[kernel * 8u + tap] * input[row * parameters.columns + at - 3u];
        }
    }
    output[number] = times(gains[cell] * sum, times(run.phase, steps[row * 64u + place]));
}
