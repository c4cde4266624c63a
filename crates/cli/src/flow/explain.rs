//! The plan for people.

use bywash_flow::plan::{Plan, Promises};
use bywash_flow::size::Bytes;
use std::fmt::Write;

/// All plans of a flow, one behind the other.
pub fn render(plans: &[Plan]) -> String {
    let mut text = String::new();
    for plan in plans {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} -> {}", plan.source, plan.sink);
        for (number, choice) in plan.movers.iter().enumerate() {
            let head = if number == 0 { "mover" } else { "else" };
            let _ = writeln!(text, "  {head:<6} {:<11} {}", choice.mover, choice.why);
        }
        let _ = writeln!(text, "  block  {}", Bytes(plan.block as u64));
        let _ = writeln!(text, "  data   {}", promises(&plan.promises, plan.keeps_holes));
        for choice in &plan.others {
            let _ = writeln!(text, "  not    {:<11} {}", choice.mover, choice.why);
        }
    }
    text
}

fn promises(promises: &Promises, keeps_holes: bool) -> String {
    let mut words = vec![
        if promises.by_value { "by value" } else { "by reference" },
        if promises.ordered { "ordered" } else { "in the order in which it comes" },
        if promises.lossless { "lossless" } else { "loss is counted" },
    ];
    words.extend(keeps_holes.then_some("holes stay holes"));
    words.push(if promises.durable { "durable in the end" } else { "durable when the kernel writes it" });
    words.join(", ")
}
