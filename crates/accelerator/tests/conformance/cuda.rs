//! Every NVIDIA card runs all cases but those that need a processor, and so does a driver in software.

use crate::suite;
use bywash_accelerator::kernel::{Fft, Sar};
use bywash_accelerator::sar::{Echoes, SarOptions, Target, image, image_by};
use bywash_accelerator::{Cuda, Device, Error, Kernel, SessionOptions, devices};
use std::path::Path;
use std::process::{Command, Output};

/// Environment variable of the processes that run with the driver in software.
const SOFTWARE: &str = "SOFTWARE_CUDA_FOLDER";

/// Opens all cards.
fn cards() -> Vec<Cuda> {
    let devices = devices::all();
    let absent = devices.absent.iter().filter(|absent| absent.name == "cuda");
    absent.for_each(|absent| println!("cuda is not tested: {}", absent.reason));
    let cards = devices.found.iter().filter_map(|found| found.name.strip_prefix("cuda:"));
    cards.map(|number| Cuda::open(number.parse().unwrap()).unwrap()).collect()
}

fn check(cuda: &Cuda) {
    let skipped = suite::check(cuda);
    assert!(matches!(&skipped[..], [sha256] if sha256.contains("cannot run sha256")), "{skipped:#?}");
}

#[test]
fn cards_conform() {
    cards().iter().for_each(check);
}

/// Runs a test of this file in a process that has the driver in software, with further variables.
fn in_software(test: &str, variables: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/cuda/driver.cpp");
    let library = folder.path().join("libcuda.so");
    let mut compile = Command::new("c++");
    compile.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-pthread", "-o"]).arg(&library).arg(source);
    assert!(compile.status().unwrap().success(), "the driver in software does not compile");
    // Its functions are in one library, which is found by both names.
    std::os::unix::fs::symlink(&library, folder.path().join("libnvrtc.so")).unwrap();
    let mut run = Command::new(std::env::current_exe().unwrap());
    run.args(["--exact", "--nocapture", "--ignored", &format!("cuda::{test}")]);
    run.env("LD_LIBRARY_PATH", folder.path()).env(SOFTWARE, folder.path()).envs(variables.iter().copied());
    run.output().unwrap()
}

fn assert_passes(test: &str, variables: &[(&str, &str)]) {
    let output = in_software(test, variables);
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
}

/// Opens the card that the driver in software has.
fn card_in_software() -> Cuda {
    assert!(std::env::var_os(SOFTWARE).is_some(), "a test of a process that has the driver in software");
    let cuda = Cuda::open(0).unwrap();
    assert_eq!(cuda.name(), "cuda:0");
    assert!(cuda.description().contains("processor (CUDA, compute capability 7.7"), "{}", cuda.description());
    cuda
}

#[test]
fn a_card_in_software_conforms() {
    assert_passes("software_conforms", &[]);
}

#[test]
#[ignore = "run by another test, with the driver in software"]
fn software_conforms() {
    check(&card_in_software());
}

#[test]
fn a_card_in_software_forms_images() {
    assert_passes("software_forms_images", &[]);
}

#[test]
#[ignore = "run by another test, with the driver in software"]
fn software_forms_images() {
    for (range, azimuth) in [(256, 512), (300, 130), (37, 1000), (65, 3)] {
        let sar = Sar::strip_map(range, azimuth);
        let middle =
            Target { range_cell: range as f64 / 3.0, azimuth_row: azimuth as f64 / 2.0, amplitude: 1.0 };
        let raw = Echoes::new(&sar, vec![middle]).noise(0.1, 7).scene();
        let options = SarOptions::default();
        let expected = image(&sar, &options, &raw).unwrap();
        let image = image_by(card_in_software().former(&sar, &options).unwrap(), &raw).unwrap();
        let peak = expected.iter().map(|sample| sample.norm()).fold(0.0, f32::max);
        let largest = image.iter().zip(&expected).map(|(a, b)| (a - b).norm()).fold(0.0, f32::max);
        assert!(largest < 1e-5 * peak, "{range} x {azimuth}: {} of the peak", largest / peak);
    }
}

#[test]
fn a_card_that_fails_ends_its_session() {
    assert_passes("software_fails", &[("SOFTWARE_CUDA_LAUNCHES", "20")]);
}

#[test]
#[ignore = "run by another test, with the driver in software"]
fn software_fails() {
    let kernel = Kernel::Fft(Fft { size: 64, is_inverse: false });
    let options = SessionOptions::default().block_bytes(4096);
    let mut session = card_in_software().session(&kernel, &options).unwrap();
    let error = suite::drive::drive(&mut session, &[0; 1 << 20], |_| usize::MAX).unwrap_err();
    assert!(matches!(&error, Error::Lost { message, .. } if message.contains("launch failure")), "{error}");
}

#[test]
fn a_card_without_memory_says_so() {
    assert_passes("software_is_full", &[("SOFTWARE_CUDA_BYTES", "1000000")]);
}

#[test]
#[ignore = "run by another test, with the driver in software"]
fn software_is_full() {
    let kernel = Kernel::Fft(Fft { size: 64, is_inverse: false });
    let error = card_in_software().session(&kernel, &SessionOptions::default()).map(drop).unwrap_err();
    assert!(matches!(&error, Error::Memory { device, .. } if device == "cuda:0"), "{error}");
}
