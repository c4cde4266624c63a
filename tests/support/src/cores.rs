//! Cores of the device servers that tests start.

/// Returns the number of cores of a server whose test does not choose it: that of `BYWASH_TEST_CORES`, otherwise 1.
///
/// # Panics
/// If the variable is set and is no number.
pub fn server_cores() -> usize {
    let cores = std::env::var("BYWASH_TEST_CORES");
    cores.map_or(1, |cores| cores.parse().expect("BYWASH_TEST_CORES is a number of cores"))
}
