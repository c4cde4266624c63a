//! The steps of an input.

use arbitrary::{Arbitrary, Result, Unstructured};

/// Greatest number of steps of an input, so that no input takes long.
const STEPS_MAX: usize = 100;

/// As many steps as the input has bytes for. A `Vec` would spend a byte before each step on whether there is
/// one more, and mostly end after two.
#[derive(Debug)]
pub struct Steps<T>(Vec<T>);

impl<'a, T: Arbitrary<'a>> Arbitrary<'a> for Steps<T> {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Steps<T>> {
        let mut steps = Vec::new();
        while !input.is_empty() && steps.len() < STEPS_MAX {
            steps.push(input.arbitrary()?);
        }
        Ok(Steps(steps))
    }
}

impl<T> IntoIterator for Steps<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
