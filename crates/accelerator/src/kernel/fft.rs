//! Possible sizes of Fourier transforms.

use super::Fft;
use crate::error::Error;

impl Fft {
    /// Greatest size of a frame, in samples.
    pub const SIZE_MAX: usize = 1 << 24;

    /// Checks the size.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the size and the possible range.
    pub fn check(&self) -> Result<(), Error> {
        match (1..=Fft::SIZE_MAX).contains(&self.size) {
            true => Ok(()),
            false => Err(Error::Parameter(format!(
                "a frame of a Fourier transform can have 1 to {} samples, but not {}",
                Fft::SIZE_MAX,
                self.size
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_range() {
        for size in [1, 1009, Fft::SIZE_MAX] {
            Fft { size, is_inverse: false }.check().unwrap();
        }
        for size in [0, Fft::SIZE_MAX + 1] {
            let message = Fft { size, is_inverse: true }.check().unwrap_err().to_string();
            assert!(
                message.contains("1 to 16777216") && message.contains(&format!("not {size}")),
                "{message}"
            );
        }
    }
}
