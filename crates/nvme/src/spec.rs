//! `nvme:ADDRESS`: the device on a command line.
//!
//! Invariant: printing parsed options gives a text that parses to the same options. Called by the parser of
//! specifications ([`bywash_device::Spec::parse`]).

use crate::device::{DEPTH_MAX, Nvme, Options, QUEUES_MAX};
use crate::error::Error;
use crate::pci::Address;
use crate::vfio::Vfio;
use crate::virtual_functions::{FUNCTIONS_MAX, VirtualFunction};
use bywash_device::{Device, DeviceKind, DeviceOptions, DevicePart, Grantable};
use bywash_options::{OptionError, OptionRow, Row, Value, Words, flag, option};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

/// Kind of device `nvme:ADDRESS`, a controller that is bound to vfio-pci.
pub static DEVICE_KIND: DeviceKind = DeviceKind {
    row: Row {
        name: "nvme",
        address: "PCI-ADDRESS",
        sentence: "an NVMe controller that is bound to vfio-pci, driven without the kernel: see bywash-nvme(1)",
        options: &[
            OptionRow::new("namespace", Value::Number, "number of the namespace; none: the only one"),
            OptionRow::new("queues", Value::Number, "greatest number of pairs of I/O queues").or("1"),
            OptionRow::new("depth", Value::Number, "greatest number of commands in flight").or("128"),
            OptionRow::new("vfs", Value::Number, "number of virtual functions, each a device NAME.NAMESPACE"),
            OptionRow::flag("read-only", "the device may only be read"),
            OptionRow::flag(
                "polled",
                "completions cause no interrupts: the server polls as long as commands are in flight",
            ),
        ],
    },
    parse,
};

/// Address of a controller, and options of its device.
#[derive(Clone, Debug)]
struct ControllerOptions {
    address: Address,
    options: Options,
    /// Number of virtual functions to serve instead of the function itself.
    functions: Option<u16>,
}

fn parse(words: &mut Words<'_>) -> Result<Arc<dyn DeviceOptions>, OptionError> {
    let address = words.address()?.parse::<Address>().map_err(|error| words.error(error.to_string()))?;
    let mut options = Options {
        read_only: words.flag("read-only")?,
        interrupts: !words.flag("polled")?,
        ..Options::default()
    };
    options.namespace = number(words, "namespace", 1..=u32::MAX - 1)?;
    if let Some(queues) = number(words, "queues", 1..=u32::from(QUEUES_MAX))? {
        // Fits: the parsed number is within the range of the type.
        options.queues = queues as u16;
    }
    if let Some(depth) = number(words, "depth", 1..=DEPTH_MAX as u32)? {
        options.depth = depth as usize;
    }
    let functions = number(words, "vfs", 1..=u32::from(FUNCTIONS_MAX))?;
    if functions.is_some() && options.namespace.is_some() {
        return Err(words.error(
            "vfs= and namespace= exclude each other: each virtual function has a namespace of its own",
        ));
    }
    // Fits: the parsed number is within the range of the type.
    let functions = functions.map(|functions| functions as u16);
    Ok(Arc::new(ControllerOptions { address, options, functions }))
}

/// Takes the option `name`, a number in `range`.
fn number(words: &mut Words<'_>, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, OptionError> {
    words.value(name, |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("'{text}' is no number from {} to {}", range.start(), range.end()))
    })
}

impl DeviceOptions for ControllerOptions {
    fn open(&self) -> Result<Box<dyn Device>, bywash_device::Error> {
        if self.functions.is_some() {
            let reason =
                "with vfs= it is several devices: name one virtual function, and leave vfs= out".into();
            return Err(Error::Unsupported { reason }.of_device(&self.address));
        }
        let opened = Vfio::open(&self.address).and_then(|function| Nvme::open(function, &self.options));
        Ok(Box::new(opened.map_err(|error| error.of_device(&self.address))?))
    }

    fn open_parts(&self) -> Result<Vec<DevicePart>, bywash_device::Error> {
        let Some(count) = self.functions else {
            return Ok(vec![DevicePart { name: None, device: self.open()?, grantable: None }]);
        };
        let functions = VirtualFunction::make_all(&self.address, count, &self.options);
        let functions = functions.map_err(|error| error.of_device(&self.address))?;
        let part = |function: VirtualFunction| {
            let device = Grantable::open(&function)?;
            let name = Some(function.namespace().to_string());
            Ok(DevicePart { name, device, grantable: Some(Arc::new(function)) })
        };
        functions.into_iter().map(part).collect()
    }

    fn is_volatile(&self) -> bool {
        false
    }

    fn file_to_create(&self) -> Option<(&Path, u64)> {
        None
    }
}

impl fmt::Display for ControllerOptions {
    /// Writes the options as they are parsed, `nvme:ADDRESS,...`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { namespace, queues, depth, interrupts, read_only, .. } = &self.options;
        let usual = Options::default();
        write!(out, "{}{}", DEVICE_KIND.row.prefix(), self.address)?;
        option(out, "namespace", *namespace)?;
        option(out, "queues", Some(queues).filter(|queues| **queues != usual.queues))?;
        option(out, "depth", Some(depth).filter(|depth| **depth != usual.depth))?;
        option(out, "vfs", self.functions)?;
        flag(out, "read-only", *read_only)?;
        flag(out, "polled", !interrupts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_device::Spec;

    fn spec(text: &str) -> Result<Spec, bywash_device::Error> {
        Spec::parse(text, &[&DEVICE_KIND])
    }

    #[test]
    fn what_is_printed_reads_as_the_same() {
        for (text, printed) in [
            ("a=nvme:00:04.0", "a=nvme:0000:00:04.0"),
            ("a=nvme:0000:AF:1f.7,depth=128,queues=1", "a=nvme:0000:af:1f.7"),
            (
                "a=nvme:00:04.0,polled,read-only,depth=32,queues=4,namespace=2",
                "a=nvme:0000:00:04.0,namespace=2,queues=4,depth=32,read-only,polled",
            ),
            ("a=nvme:01:00.0,polled,vfs=2,depth=32", "a=nvme:0000:01:00.0,depth=32,vfs=2,polled"),
            ("a=mem:4K", "a=mem:4096"),
        ] {
            let parsed = spec(text).unwrap();
            assert_eq!(parsed.to_string(), printed);
            assert_eq!(spec(printed).unwrap(), parsed);
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_the_remedy() {
        for (text, what) in [
            ("a=nvme:", "'' is no PCI address"),
            ("a=nvme:x", "'x' is no PCI address: write it as in 0000:00:04.0"),
            ("a=nvme:00:04.0,namespace=0", "'0' is no number from 1 to 4294967294"),
            ("a=nvme:00:04.0,queues=65", "'65' is no number from 1 to 64"),
            ("a=nvme:00:04.0,depth=0", "'0' is no number from 1 to 4096"),
            ("a=nvme:00:04.0,vfs=128", "'128' is no number from 1 to 127"),
            ("a=nvme:00:04.0,vfs=2,namespace=1", "vfs= and namespace= exclude each other"),
            ("a=nvme:00:04.0,poled", "did you mean 'polled'?"),
            ("a=nvm:00:04.0", "did you mean 'nvme:'?"),
        ] {
            let error = spec(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn a_controller_that_is_not_there_is_named() {
        let opened = spec("a=nvme:ffff:ff:1f.7").unwrap().open();
        let error = opened.err().unwrap().to_string();
        assert!(error.contains("ffff:ff:1f.7' is no PCI function of this machine"), "{error}");
        let parts = spec("a=nvme:ffff:ff:1f.7,vfs=2").unwrap();
        let error = parts.open_parts().unwrap_err().to_string();
        assert!(error.contains("ffff:ff:1f.7' is no PCI function of this machine"), "{error}");
        let error = parts.open().err().unwrap().to_string();
        assert!(error.contains("with vfs= it is several devices"), "{error}");
        let reason = "it has no namespace 7".to_owned();
        let error = Error::Unsupported { reason }.of_device(&"0000:00:04.0").to_string();
        assert_eq!(error, "the NVMe controller 0000:00:04.0 cannot be a device: it has no namespace 7");
    }
}
