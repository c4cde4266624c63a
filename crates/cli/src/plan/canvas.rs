//! Sizes and colours that all figures share.

use plotters::style::RGBColor;

/// Width of a figure, in pixels.
pub const WIDTH: u32 = 960;
/// Height of a figure, in pixels.
pub const HEIGHT: u32 = 540;
/// Margin around a figure, in pixels.
pub const MARGIN: u32 = 16;
/// Room for the labels of an axis, in pixels.
pub const AXIS: u32 = 48;
/// Colours of the curves, in their order. People with colour blindness can tell them apart (Okabe and Ito).
pub const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 0),
    RGBColor(120, 120, 120),
];
