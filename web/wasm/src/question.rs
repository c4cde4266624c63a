//! Questions of the page, and their answers.
//!
//! A question is `{"ask": WHAT, ...}`, an answer `{"done": ...}` or `{"refused": MESSAGE}`. A description in
//! a question is checked by the same rules as one in a file.

use crate::presets::Presets;
use crate::program::examples::examples;
use crate::reading::{Error, checked, implied, json, read};
use crate::sliders::{SLIDERS, Slider, SliderState};
use bywash_model::describe::Key;
use bywash_model::sweep::{Axis, sweep};
use bywash_model::{Architecture, Bound, Description, Performance, Resource, bound, performance};
use bywash_sim::{Options, Stop, simulate};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Question of the page.
#[derive(Debug, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
enum Question {
    /// Returns the presets.
    Presets,
    /// Returns the programs that can be chosen, with their arguments, files and clients.
    Examples,
    /// Parses a file in TOML or JSON, and keeps the values as they are written. Tells which costs it leaves out.
    Read { text: String },
    /// Writes a description as a file.
    Write { description: Value },
    /// Evaluates a description under every architecture, and returns its sliders.
    Evaluate { description: Value },
    /// Evaluates a description once for every position of the slider `key`, as the points of a curve.
    Curve { description: Value, key: String, show: CurveKind },
    /// Simulates a description under one architecture.
    Simulate { description: Value, architecture: Architecture, requests: u64, seed: u64 },
}

/// Quantity that a curve shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CurveKind {
    /// Throughput bound, in bytes per second.
    Bound,
    /// Throughput under the description's load, in bytes per second.
    Closed,
    /// Mean response time under the description's load, in seconds; null where the server is overloaded.
    Response,
}

/// Result of evaluating a description.
#[derive(Serialize)]
struct Evaluated {
    architectures: Vec<ArchitectureResult>,
    sliders: Vec<SliderState>,
    /// Names of the resources, in the order of the utilisations.
    resources: [&'static str; 6],
    /// Number of units of each resource.
    units: [f64; 6],
}

/// Result under one architecture, or the reason why the machine cannot have it.
#[derive(Serialize)]
#[serde(untagged)]
enum ArchitectureResult {
    Evaluated {
        architecture: Architecture,
        bound: Bound,
        /// Name of the resource that limits the throughput.
        binding: &'static str,
        /// Throughput bound in requests per second.
        bound_requests: f64,
        /// Performance under the description's load. Times of an overloaded server are null.
        loaded: Performance,
        is_overloaded: bool,
    },
    Refused {
        architecture: Architecture,
        refused: String,
    },
}

/// Curves of all architectures that the machine can have.
#[derive(Serialize)]
struct Curves {
    /// Positions of the slider at which the curves have their points.
    places: Vec<usize>,
    curves: Vec<Curve>,
}

#[derive(Serialize)]
struct Curve {
    architecture: Architecture,
    /// Amounts; null where a server is overloaded and has no response time.
    y: Vec<f64>,
    binding: Vec<&'static str>,
}

/// Answers a question. A simulation calls `watch` from time to time with the share that is done, 0 to 1, and
/// stops if `watch` returns false.
pub fn reply(question: &str, watch: &mut dyn FnMut(f64) -> bool) -> String {
    let asked = serde_json::from_str(question).map_err(Error::Question);
    let told = match asked.and_then(|asked| done(asked, watch)) {
        Ok(done) => serde_json::json!({ "done": done }),
        Err(refused) => serde_json::json!({ "refused": refused.to_string() }),
    };
    told.to_string()
}

fn done(question: Question, watch: &mut dyn FnMut(f64) -> bool) -> Result<Value, Error> {
    match question {
        Question::Presets => json(&Presets::all()?),
        Question::Examples => json(&examples()),
        Question::Read { text } => {
            Ok(serde_json::json!({ "description": read(&text)?, "implied": implied(&text) }))
        }
        Question::Write { description } => {
            let text = toml::to_string(&checked(&description)?);
            text.map(Value::from).map_err(|error| Error::Write(error.to_string()))
        }
        Question::Evaluate { description } => json(&evaluate(&affordable(&description)?)),
        Question::Curve { description, key, show } => json(&curves(&affordable(&description)?, &key, show)?),
        Question::Simulate { description, architecture, requests, seed } => {
            let options = Options::default().seed(seed).stop(Stop::Requests(requests));
            json(&simulate(&checked(&description)?, architecture, &options, watch)?)
        }
    }
}

/// Greatest number of steps of one evaluation: some milliseconds on a phone.
const STEPS_MAX: f64 = 2e6;
/// Target number of steps for all points of a curve. The more steps a point takes, the fewer points are
/// computed.
const CURVE_STEPS: f64 = 1e6;

/// Additional steps of an open load: the throughput is computed for each of the first numbers of requests.
const OPEN_STEPS: f64 = 8192.0;

/// Returns the number of steps for one architecture: each thread visits every station.
fn steps(description: &Description) -> f64 {
    let load = &description.load;
    load.threads * Resource::ALL.len() as f64 + if load.is_open() { OPEN_STEPS } else { 0.0 }
}

fn affordable(description: &Value) -> Result<Description, Error> {
    let description = checked(description)?;
    if steps(&description) > STEPS_MAX {
        return Err(Error::TooMany(description.load.threads));
    }
    Ok(description)
}

fn evaluate(description: &Description) -> Evaluated {
    let (machine, work) = (&description.machine, description.workload());
    let comes = |architecture| {
        if let Err(refused) = description.supports(architecture) {
            return ArchitectureResult::Refused { architecture, refused: refused.to_string() };
        }
        let bound = bound(machine, &work, architecture);
        let loaded = performance(machine, &work, architecture);
        ArchitectureResult::Evaluated {
            architecture,
            binding: bound.binding.name(),
            bound_requests: bound.throughput / work.request_bytes(),
            bound,
            is_overloaded: loaded.is_overloaded(),
            loaded,
        }
    };
    Evaluated {
        architectures: Architecture::ALL.map(comes).into(),
        sliders: SLIDERS.iter().filter_map(|slider| slider.placed(description)).collect(),
        resources: Resource::ALL.map(Resource::name),
        units: bywash_model::Demand::new(machine, &work, Architecture::Direct).units,
    }
}

fn curves(description: &Description, name: &str, show: CurveKind) -> Result<Curves, Error> {
    let slider = Slider::named(name).ok_or_else(|| Error::NoSlider(name.into()))?;
    let key = Key::by_name(name)?;
    let values = slider.values();
    let stride = if show == CurveKind::Bound { 1 } else { stride(description, key, &values)? };
    let last = values.len().saturating_sub(1);
    // No arrivals are a closed load, whose threads ask again at once: another question.
    let first = usize::from(name == "load.arrivals");
    let places: Vec<usize> = (first..last).step_by(stride).chain([last]).collect();
    let axis = Axis { key, values: places.iter().map(|place| values[*place]).collect() };
    let curves = supported(description, &axis)?.into_iter().map(|architecture| {
        let table = sweep(description, std::slice::from_ref(&axis), architecture)?;
        let y = match show {
            CurveKind::Bound => table.throughput,
            _ => under_load(description, &axis, architecture, show)?,
        };
        let binding = table.binding.iter().map(|resource| resource.name()).collect();
        Ok(Curve { architecture, y, binding })
    });
    Ok(Curves { places, curves: curves.collect::<Result<_, Error>>()? })
}

/// Returns the architectures that the machine can have at some value of the axis. Curves of devices' processors
/// begin where the devices have none.
fn supported(description: &Description, axis: &Axis) -> Result<Vec<Architecture>, Error> {
    let mut here = *description;
    let mut found = description.supported();
    if let Some(last) = axis.values.last() {
        *axis.key.number_in(&mut here)? = *last;
        found = Architecture::ALL
            .into_iter()
            .filter(|one| found.contains(one) || here.supports(*one).is_ok())
            .collect();
    }
    Ok(found)
}

/// Returns the distance between computed positions, 1 to 10.
fn stride(description: &Description, key: Key, values: &[f64]) -> Result<usize, Error> {
    let mut most = 0.0f64;
    let mut here = *description;
    for value in values {
        *key.number_in(&mut here)? = *value;
        most += steps(&here);
    }
    let all = most * Architecture::ALL.len() as f64;
    Ok((all / CURVE_STEPS).ceil().clamp(1.0, 10.0) as usize)
}

fn under_load(
    description: &Description,
    axis: &Axis,
    architecture: Architecture,
    show: CurveKind,
) -> Result<Vec<f64>, Error> {
    let mut here = *description;
    let point = |value: &f64| {
        *axis.key.number_in(&mut here)? = *value;
        if here.supports(architecture).is_err() {
            return Ok(if show == CurveKind::Response { f64::INFINITY } else { 0.0 });
        }
        let loaded = performance(&here.machine, &here.workload(), architecture);
        Ok(if show == CurveKind::Response { loaded.response } else { loaded.throughput })
    };
    axis.values.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SERVER: &str = include_str!("../../../docs/guide/server.toml");

    fn ask(question: &Value) -> Value {
        serde_json::from_str(&reply(&question.to_string(), &mut |_| true)).unwrap()
    }

    fn server() -> Value {
        ask(&json!({ "ask": "read", "text": SERVER }))["done"]["description"].clone()
    }

    #[test]
    fn a_file_is_read_as_it_is_written_and_evaluated() {
        let description = server();
        assert_eq!(description["machine"]["interfaces"]["rate"], "116 MiB/s");
        let told = ask(&json!({ "ask": "evaluate", "description": description }));
        let active = &told["done"]["architectures"][2];
        assert_eq!((&active["architecture"], &active["binding"]), (&json!("active"), &json!("disks")));
        assert!((active["bound"]["throughput"].as_f64().unwrap() / 1048576.0 - 268.0).abs() < 0.05);
        let sliders = told["done"]["sliders"].as_array().unwrap();
        let miss = sliders.iter().find(|slider| slider["key"] == "request.web.miss").unwrap();
        assert_eq!((&miss["place"], &miss["notches"][20]), (&json!(20.0), &json!("10 %")));
        assert!(sliders.iter().all(|slider| slider["key"] != "machine.disks.flash.latency"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in [SERVER.to_owned(), server().to_string()] {
            let description = ask(&json!({ "ask": "read", "text": text }))["done"]["description"].clone();
            let file = ask(&json!({ "ask": "write", "description": description }))["done"].clone();
            let again = Description::from_toml(file.as_str().unwrap()).unwrap();
            assert_eq!(again, Description::from_toml(SERVER).unwrap());
        }
    }

    #[test]
    fn a_curve_passes_through_what_is_evaluated() {
        for (show, field) in [
            ("bound", ["bound", "throughput"]),
            ("closed", ["loaded", "throughput"]),
            ("response", ["loaded", "response"]),
        ] {
            let mut description = server();
            let question = json!({ "ask": "curve", "description": description, "key": "machine.disks.count", "show": show });
            let told = ask(&question)["done"].clone();
            let last = told["places"].as_array().unwrap().len() - 1;
            description["machine"]["disks"]["count"] = json!(64);
            let alone = ask(&json!({ "ask": "evaluate", "description": description }))["done"].clone();
            for (curve, comes) in
                told["curves"].as_array().unwrap().iter().zip(alone["architectures"].as_array().unwrap())
            {
                assert_eq!(curve["y"][last], comes[field[0]][field[1]], "{show}");
                assert_eq!(curve["binding"][last], comes["binding"], "{show}");
            }
        }
    }

    #[test]
    fn what_a_machine_cannot_be_is_told_and_costs_that_are_left_out_too() {
        let bare = SERVER.replace(", processor = \"300 MHz\"", "");
        let told = ask(&json!({ "ask": "read", "text": bare }))["done"].clone();
        for left_out in ["tcp 3.8 cycles/B", "a system call without I/O costs 322 cycles"] {
            assert!(told["implied"].as_str().unwrap().contains(left_out), "{told}");
        }
        let description = told["description"].clone();
        let evaluated = ask(&json!({ "ask": "evaluate", "description": description }))["done"].clone();
        let active = &evaluated["architectures"][2];
        assert!(active["refused"].as_str().unwrap().contains("have no processor"), "{active}");
        let curves = |key: &str| {
            let question =
                json!({ "ask": "curve", "description": description, "key": key, "show": "closed" });
            ask(&question)["done"]["curves"].as_array().unwrap().len()
        };
        assert_eq!((curves("machine.disks.count"), curves("machine.interfaces.processor")), (2, 2));
        assert_eq!(ask(&json!({ "ask": "read", "text": SERVER }))["done"]["description"], server());
    }

    #[test]
    fn arrivals_have_response_times_up_to_the_capacity() {
        let mut description = server();
        description["load"]["arrivals"] = json!("2000 /s");
        let told = ask(&json!({ "ask": "evaluate", "description": description }))["done"].clone();
        let one = &told["architectures"][0];
        assert_eq!((&one["is_overloaded"], &one["loaded"]["requests"]), (&json!(false), &json!(2000.0)));
        let keys: Vec<&str> =
            told["sliders"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
        assert!(keys.contains(&"load.burst") && !keys.contains(&"load.think"), "{keys:?}");
        let question =
            json!({ "ask": "curve", "description": description, "key": "load.arrivals", "show": "response" });
        let curve = ask(&question)["done"]["curves"][0]["y"].clone();
        let y = curve.as_array().unwrap();
        assert!(y[0].is_number() && y[y.len() - 1].is_null(), "{curve}");
        description["load"]["arrivals"] = json!("20000 /s");
        let told = ask(&json!({ "ask": "evaluate", "description": description }))["done"].clone();
        let one = &told["architectures"][0];
        assert_eq!((&one["is_overloaded"], &one["loaded"]["response"]), (&json!(true), &Value::Null));
    }

    #[test]
    fn many_threads_have_fewer_points_and_the_last_one() {
        let mut description = server();
        description["load"] = json!({ "threads": 1024 });
        description["machine"]["processors"]["count"] = json!(64);
        let question =
            json!({ "ask": "curve", "description": description, "key": "costs.system", "show": "closed" });
        let places = ask(&question)["done"]["places"].clone();
        let places = places.as_array().unwrap();
        assert!((30..100).contains(&places.len()), "{}", places.len());
        assert_eq!(places.last().unwrap(), &json!(200));
    }

    #[test]
    fn a_simulation_comes_near_the_model_and_can_be_stopped() {
        let question = json!({
            "ask": "simulate", "description": server(), "architecture": "active", "requests": 20_000, "seed": 7,
        });
        let told = ask(&question)["done"].clone();
        let model = ask(&json!({ "ask": "evaluate", "description": server() }))["done"].clone();
        let simulated = told["throughput"]["mean"].as_f64().unwrap();
        let computed = model["architectures"][2]["loaded"]["throughput"].as_f64().unwrap();
        assert!((simulated / computed - 1.0).abs() < 0.1, "{simulated} {computed}");
        assert_eq!((&told["is_whole"], &told["requests"]), (&json!(true), &json!(20_000)));
        let stopped: Value = serde_json::from_str(&reply(&question.to_string(), &mut |_| false)).unwrap();
        assert_eq!(stopped["done"]["is_whole"], false);
    }

    #[test]
    fn every_preset_is_a_description() {
        let presets = ask(&json!({ "ask": "presets" }))["done"].clone();
        for server in presets["servers"].as_array().unwrap() {
            for requests in presets["requests"].as_array().unwrap() {
                let mut description = server["description"].clone();
                description["request"] = requests["request"].clone();
                let told = ask(&json!({ "ask": "evaluate", "description": description }));
                let rates = told["done"]["architectures"].as_array().unwrap().iter();
                assert!(
                    rates.clone().all(|one| {
                        one.get("refused").is_some() || one["bound"]["throughput"].as_f64().unwrap() > 0.0
                    }),
                    "{told}"
                );
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let with = |pointer: &str, value: Value| {
            let mut description = server();
            *description.pointer_mut(pointer).unwrap() = value;
            json!({ "ask": "evaluate", "description": description })
        };
        let mut crowded = server();
        crowded["load"] = json!({ "threads": 1e6 });
        for (question, wanted) in [
            (json!({ "ask": "weather" }), "not a question"),
            (
                json!({ "ask": "simulate", "description": server(), "architecture": "direct", "requests": 0, "seed": 1 }),
                "no requests or no time",
            ),
            (with("/machine/disks/rate", json!("6.7 GHz")), "'6.7 GHz' is not a rate"),
            (with("/request/web/miss", json!("300 %")), "at most 100 %"),
            (json!({ "ask": "evaluate", "description": crowded }), "take too long on a page"),
            (json!({ "ask": "read", "text": SERVER.replace("miss", "mis") }), "line 11"),
            (
                json!({ "ask": "curve", "description": server(), "key": "machine.wheels", "show": "bound" }),
                "no slider",
            ),
            (
                json!({ "ask": "curve", "description": server(), "key": "request.video.file", "show": "bound" }),
                "there is no 'request.video.file'",
            ),
        ] {
            let refused = ask(&question)["refused"].as_str().unwrap().to_owned();
            assert!(refused.contains(wanted), "{refused}");
        }
    }
}
