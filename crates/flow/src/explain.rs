//! Text form of a [`Plan`] for people, as `--explain` prints it.

use crate::plan::{Plan, Promises, RankedMover};
use bywash_quantity::Bytes;
use std::fmt;

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} -> {}", self.source, self.sink)?;
        for (number, choice) in self.movers.iter().enumerate() {
            let head = match number {
                _ if self.trial.contains(&choice.mover) => "trial",
                0 => "mover",
                _ => "else",
            };
            line(out, head, choice)?;
        }
        writeln!(out, "  block  {}", Bytes(self.block as u64))?;
        writeln!(out, "  data   {}", promises(&self.promises, self.keeps_holes))?;
        self.others.iter().try_for_each(|choice| line(out, "not", choice))
    }
}

fn line(out: &mut fmt::Formatter<'_>, head: &str, choice: &RankedMover) -> fmt::Result {
    writeln!(out, "  {head:<6} {:<11} {}", choice.mover, choice.why)
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

#[cfg(test)]
mod tests {
    use crate::Flow;

    #[test]
    fn a_plan_says_what_and_why_not() {
        let flow = Flow::new("zero:".parse().unwrap(), "null:".parse().unwrap());
        let text = flow.plan().unwrap()[0].to_string();
        assert!(text.starts_with("zero: -> null:\n  mover  buffer      "), "{text}");
        assert!(text.contains("\n  block  ") && text.contains("\n  data   by value, ordered"), "{text}");
        assert!(text.contains("\n  not    splice      ") && text.ends_with('\n'), "{text}");
    }
}
