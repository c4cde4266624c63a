//! Inserts all parts into the page, with a policy under which the page loads nothing else.
//!
//! The page's content security policy names script and style by their SHA-256 and allows nothing else; a
//! browser enforces this wherever the page is opened from. The policy permits compiling the WebAssembly
//! engine (`wasm-unsafe-eval`), workers from the page's own scripts (`blob:`), and the icon inside the page
//! (`data:`).

use crate::error::Error;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

const POLICY: &str = "{{policy}}";
const STYLE: &str = "{{style}}";
const SCRIPT: &str = "{{script}}";
const WORKER: &str = "{{worker}}";
const ENGINE: &str = "{{engine}}";
const PROGRAMS: &str = "{{programs}}";
const MISSING: &str = "{{missing}}";

/// Parts that are inserted into a page.
pub struct Parts<'a> {
    pub style: &'a str,
    /// Main script.
    pub script: &'a str,
    /// Script of the worker, which runs beside the main script.
    pub worker: &'a str,
    /// WebAssembly module that computes, compressed by gzip.
    pub engine: &'a [u8],
    /// Executable with the programs of the page, compressed by gzip; the reason if there is none.
    pub programs: Result<&'a [u8], &'a str>,
}

/// Returns the page `html` with the parts in the places of their markers.
///
/// # Errors
/// [`Error::Place`] if a marker is missing or occurs more than once; [`Error::Ends`] if a part contains the
/// text that would end its element.
pub fn filled(html: &str, parts: &Parts<'_>) -> Result<String, Error> {
    let Parts { style, script, worker, engine, programs } = *parts;
    for place in [POLICY, STYLE, SCRIPT, WORKER, ENGINE, PROGRAMS, MISSING] {
        let count = html.matches(place).count();
        if count != 1 {
            return Err(Error::Place { place, count });
        }
    }
    for (what, content, text) in
        [("the style", style, "</style"), ("a script", script, "</script"), ("a script", worker, "</script")]
    {
        if content.to_ascii_lowercase().contains(text) {
            return Err(Error::Ends { what, text });
        }
    }
    let policy = format!(
        "default-src 'none'; script-src '{}' 'wasm-unsafe-eval'; style-src '{}'; worker-src blob:; \
         connect-src blob:; img-src data:; base-uri 'none'; form-action 'none'",
        hash(script),
        hash(style)
    );
    let engine = BASE64_STANDARD.encode(engine);
    let (programs, missing) = match programs {
        Ok(bytes) => (BASE64_STANDARD.encode(bytes), String::new()),
        Err(reason) => (String::new(), escaped(reason)),
    };
    let contents = [
        (POLICY, policy.as_str()),
        (STYLE, style),
        (SCRIPT, script),
        (WORKER, worker),
        (ENGINE, &engine),
        (PROGRAMS, &programs),
        (MISSING, &missing),
    ];
    // One pass over the page, because a script may contain another part's marker.
    let mut page =
        String::with_capacity(html.len() + contents.iter().map(|(_, content)| content.len()).sum::<usize>());
    let mut rest = html;
    while let Some(at) = rest.find("{{") {
        let (before, place) = rest.split_at(at);
        page.push_str(before);
        let known = contents.iter().find(|(name, _)| place.starts_with(name));
        let (name, content) = known.copied().unwrap_or(("{{", "{{"));
        page.push_str(content);
        rest = &place[name.len()..];
    }
    page.push_str(rest);
    Ok(page)
}

/// Returns a text as the value of an attribute.
fn escaped(text: &str) -> String {
    let escapes = [("&", "&amp;"), ("\"", "&quot;"), ("<", "&lt;"), (">", "&gt;")];
    escapes.iter().fold(text.to_owned(), |text, (one, other)| text.replace(one, other))
}

fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTML: &str = "<meta content=\"{{policy}}\"><style>{{style}}</style><i>{{engine}}</i><b>{{worker}}</b>\
        <u title=\"{{missing}}\">{{programs}}</u><script>{{script}}</script>";
    const PARTS: Parts<'_> = Parts {
        style: "p {}",
        script: "f('{{style}}')",
        worker: "g()",
        engine: b"\0asm",
        programs: Ok(b"\x1f\x8b"),
    };

    #[test]
    fn everything_is_in_its_place_and_named_in_the_policy() {
        let page = filled(HTML, &PARTS).unwrap();
        let wanted = "<style>p {}</style><i>AGFzbQ==</i><b>g()</b><u title=\"\">H4s=</u>\
            <script>f('{{style}}')</script>";
        assert!(page.ends_with(wanted), "{page}");
        assert!(page.contains(&format!("style-src '{}'", hash("p {}"))));
        assert_eq!(hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }

    #[test]
    fn the_reason_for_missing_programs_is_in_the_page() {
        let page = filled(HTML, &Parts { programs: Err("no \"cc\" <here>"), ..PARTS }).unwrap();
        assert!(page.contains("<u title=\"no &quot;cc&quot; &lt;here&gt;\"></u>"), "{page}");
    }

    #[test]
    fn what_would_break_the_page_is_refused() {
        let placeless = HTML.replace(ENGINE, "");
        assert!(filled(&placeless, &PARTS).unwrap_err().to_string().contains("0 places for {{engine}}"));
        let ending = Parts { worker: "'</SCRIPT>'", ..PARTS };
        assert!(filled(HTML, &ending).unwrap_err().to_string().contains("</script"));
    }
}
