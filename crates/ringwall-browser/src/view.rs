//! The current page during one action: calls to it and to our functions in it.
//!
//! The functions (`page.js`) run in an isolated world, which scripts of the page can neither see
//! nor change. Chromium may reuse the id of a world after a navigation, even for the page's own
//! context. Therefore the functions have a random name per world, and an answer counts only if the
//! page still shows the same document.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::action::{FieldKind, Target};
use crate::connection::Connection;
use crate::document::Document;
use crate::error::Error;
use crate::protocol::{
    Argument, BringToFront, Call, CallFunction, CreateWorld, Evaluate, Evaluated, TerminateExecution,
};
use crate::text;

/// Limit for cheap calls to a page.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(10);
/// Limit for a target to become ready.
const TIMEOUT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);
const ATTEMPTS: u32 = 3;

const FUNCTIONS: &str = include_str!("page.js");
const DISPATCH: &str = "function (key, name, arguments) { const answer = globalThis[key]; \
     if (typeof answer !== 'function') throw 'elsewhere'; return answer(name, arguments); }";

/// State that is kept between actions.
#[derive(Debug, Default)]
pub(crate) struct ViewMemory {
    world: Option<World>,
    /// The page that was last brought to the front.
    front: Option<String>,
    /// Number of the first reference of the last outline, and the next unused number.
    pub(crate) references: (u64, u64),
}

#[derive(Debug, Clone)]
struct World {
    session: String,
    loader: String,
    context: i64,
    key: String,
}

#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) connection: &'a Connection,
    /// Names of password and payment fields as JSON, for `page.js`.
    pub(crate) names: &'a str,
    pub(crate) memory: &'a mut ViewMemory,
    pub(crate) session: String,
    /// If set, the only document that may be acted on.
    pub(crate) document: Option<&'a Document>,
}

/// Effect of a call, which decides whether it may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    MayAct,
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    value: Value,
    problem: Option<String>,
    #[serde(default)]
    detail: Value,
}

impl View<'_> {
    /// Switches to the newest page: the current one may have opened another or closed itself.
    pub(crate) fn follow(&mut self) -> Result<(), Error> {
        self.session = self.connection.pages(|pages| match pages.current() {
            Some(page) if page.is_crashed => Err(Error::Crashed),
            Some(page) => Ok(page.session.clone()),
            None => Err(Error::PageGone),
        })?;
        Ok(())
    }

    /// Key events go to the page in front, and only that one is rendered.
    pub(crate) async fn bring_to_front(&mut self) -> Result<(), Error> {
        while self.memory.front.as_ref() != Some(&self.session) {
            match self.call(&BringToFront {}, CALL_LIMIT).await {
                Ok(_) => self.memory.front = Some(self.session.clone()),
                // It has just closed itself; there may be another page.
                Err(Error::PageGone) => self.follow()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Calls this page. If it does not answer in time, it is marked as stuck and its script is
    /// terminated.
    pub(crate) async fn call<C: Call>(&self, call: &C, limit: Duration) -> Result<C::Answer, Error> {
        let answer = self.connection.call(Some(&self.session), call, limit).await;
        if matches!(answer, Err(Error::TimedOut { .. })) {
            self.connection.pages(|pages| {
                if let Some(page) = pages.of_session(&self.session) {
                    page.is_stuck = true;
                }
            });
            // Best effort.
            let _ = self.connection.call(Some(&self.session), &TerminateExecution {}, Duration::from_secs(1)).await;
            return Err(Error::Stuck);
        }
        answer
    }

    /// Calls one of our functions on a target, and repeats it for up to 1 s while the target is not
    /// ready.
    pub(crate) async fn run_on<T: DeserializeOwned>(
        &mut self,
        name: &str,
        target: &Target,
        mut arguments: Value,
        effect: Effect,
    ) -> Result<T, Error> {
        arguments["target"] = self.describe(target)?;
        let end = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let reply = self.reply(name, &arguments, effect, CALL_LIMIT).await?;
            let Some(problem) = reply.problem else { return read(reply.value) };
            let may_pass = problem == "none" || problem == "unready";
            if !may_pass || tokio::time::Instant::now() >= end {
                return Err(to_error(target, &arguments, &problem, &reply.detail));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Calls once, without waiting for the target.
    pub(crate) async fn run_once_on<T: DeserializeOwned>(
        &mut self,
        name: &str,
        target: &Target,
        mut arguments: Value,
    ) -> Result<T, Error> {
        arguments["target"] = self.describe(target)?;
        let reply = self.reply(name, &arguments, Effect::None, CALL_LIMIT).await?;
        match reply.problem {
            None => read(reply.value),
            Some(problem) => Err(to_error(target, &arguments, &problem, &reply.detail)),
        }
    }

    /// Calls one of our functions on the page.
    pub(crate) async fn run<T: DeserializeOwned>(
        &mut self,
        name: &str,
        arguments: Value,
        limit: Duration,
    ) -> Result<T, Error> {
        let reply = self.reply(name, &arguments, Effect::None, limit).await?;
        match reply.problem {
            None => read(reply.value),
            Some(_) => Err(Error::Page { why: reason(&reply.detail) }),
        }
    }

    /// Object id of an element.
    pub(crate) async fn element(&mut self, target: &Target) -> Result<String, Error> {
        let arguments = json!({ "target": self.describe(target)? });
        let world = self.world().await?;
        let evaluated = self.dispatch(&world, "fileField", &arguments, false, CALL_LIMIT).await?;
        evaluated.result.object_id.ok_or_else(|| Error::NoElement { target: target.to_string() })
    }

    async fn reply(&mut self, name: &str, arguments: &Value, effect: Effect, limit: Duration) -> Result<Reply, Error> {
        for _ in 0..ATTEMPTS {
            let world = self.world().await?;
            let evaluated = self.dispatch(&world, name, arguments, true, limit).await;
            let is_same = self.loader()? == world.loader;
            match evaluated {
                Ok(Evaluated { result, exception_details: None }) if is_same => {
                    let value = result.value.as_ref().map_or("null", |value| value.get());
                    return serde_json::from_str(value).map_err(|error| Error::Page { why: error.to_string() });
                }
                // Nothing was done: the world was gone, or was not ours.
                Ok(Evaluated { exception_details: Some(_), .. }) => {}
                Err(Error::Refused { message, .. }) if message.starts_with("Cannot find context") => {}
                // Something may have been done, and the document has changed.
                Ok(_) | Err(Error::Refused { .. }) if effect == Effect::MayAct => return Err(Error::Moved),
                Ok(_) | Err(Error::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
            self.memory.world = None;
        }
        Err(Error::Moved)
    }

    async fn dispatch(
        &self,
        world: &World,
        name: &str,
        arguments: &Value,
        return_by_value: bool,
        limit: Duration,
    ) -> Result<Evaluated, Error> {
        let (key, name) = (Value::from(world.key.as_str()), Value::from(name));
        let call = CallFunction {
            function_declaration: DISPATCH,
            arguments: [Argument { value: &key }, Argument { value: &name }, Argument { value: arguments }],
            execution_context_id: world.context,
            return_by_value,
            await_promise: true,
        };
        self.call(&call, limit).await
    }

    /// Fails if the page shows another document than the required one.
    pub(crate) fn require_document(&self) -> Result<(), Error> {
        match self.document {
            Some(document) if !document.is_shown(self)? => Err(Error::OtherPage),
            Some(_) | None => Ok(()),
        }
    }

    /// Loader id of the document that answered last.
    pub(crate) fn answered_by(&self) -> Option<String> {
        self.memory.world.as_ref().map(|world| world.loader.clone())
    }

    pub(crate) fn loader(&self) -> Result<String, Error> {
        self.connection.pages(|pages| match pages.of_session(&self.session) {
            Some(page) if page.is_crashed => Err(Error::Crashed),
            Some(page) => Ok(page.loader.clone()),
            None => Err(Error::PageGone),
        })
    }

    /// Returns the world with our functions in the current document; creates it if necessary.
    async fn world(&mut self) -> Result<World, Error> {
        for _ in 0..ATTEMPTS {
            self.require_document()?;
            let loader = self.loader()?;
            if let Some(world) = &self.memory.world
                && world.session == self.session
                && world.loader == loader
            {
                return Ok(world.clone());
            }
            let frame = self.connection.pages(|pages| pages.of_session(&self.session).map(|page| page.frame.clone()));
            let frame_id = frame.ok_or(Error::PageGone)?;
            let random = RandomState::new();
            let key = format!("w{:016x}{:016x}", random.hash_one(1), random.hash_one(2));
            let created = self.call(&CreateWorld { frame_id: &frame_id, world_name: &key }, CALL_LIMIT).await;
            let context = match created {
                Ok(created) => created.execution_context_id,
                // The frame has just been replaced.
                Err(Error::Refused { .. }) => continue,
                Err(error) => return Err(error),
            };
            let install = Evaluate {
                expression: &format!("({FUNCTIONS})(\"{key}\", {})", self.names),
                return_by_value: true,
                await_promise: false,
                user_gesture: false,
                timeout: 5000,
                context_id: Some(context),
                unique_context_id: None,
            };
            let installed = match self.call(&install, CALL_LIMIT).await {
                Ok(evaluated) => evaluated.exception_details.is_none(),
                Err(Error::Refused { .. }) => false,
                Err(error) => return Err(error),
            };
            if installed && self.loader()? == loader {
                let world = World { session: self.session.clone(), loader, context, key };
                self.memory.world = Some(world.clone());
                return Ok(world);
            }
        }
        Err(Error::Moved)
    }

    /// A target as `page.js` expects it. A reference of an older outline is detected by its number.
    fn describe(&self, target: &Target) -> Result<Value, Error> {
        Ok(match target {
            Target::Css(selector) => json!({ "css": selector }),
            Target::Text(text) => json!({ "text": text }),
            Target::Focused => json!({}),
            Target::Reference(reference) => {
                let number = reference.strip_prefix('e').and_then(|digits| digits.parse::<u64>().ok());
                let number = number.ok_or_else(|| Error::Reference { reference: text::cut(reference, 40) })?;
                let (first, next) = self.memory.references;
                if number < first || number >= next {
                    return Err(Error::StaleReference { reference: format!("e{number}") });
                }
                json!({ "reference": format!("e{number}") })
            }
        })
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    serde_json::from_value(value).map_err(|error| Error::Page { why: error.to_string() })
}

fn reason(detail: &Value) -> String {
    text::cut(detail.as_str().unwrap_or("no reason arguments"), 500)
}

fn to_error(target: &Target, arguments: &Value, problem: &str, detail: &Value) -> Error {
    let name = text::cut(&target.to_string(), 200);
    match problem {
        "none" => Error::NoElement { target: name },
        "stale" => Error::StaleReference { reference: name },
        "selector" => Error::Selector { selector: name, message: reason(detail) },
        "unready" | "unfit" => Error::NotReady { target: name, why: reason(detail) },
        "other" => {
            Error::OtherElement { target: name, found: reason(detail), wanted: "an element that this action accepts" }
        }
        "kind" => match (field_kind(detail), field_kind(&arguments["expected"])) {
            (Some(found), Some(expected)) => Error::OtherField { target: name, expected, found },
            (_, _) => Error::Page { why: reason(detail) },
        },
        "option" => {
            let part = |at: usize| text::cut(detail[at].as_str().unwrap_or_default(), 2500);
            Error::NoOption { target: name, option: part(0), options: part(1) }
        }
        _ => Error::Page { why: reason(detail) },
    }
}

pub(crate) fn field_kind(value: &Value) -> Option<FieldKind> {
    match value.as_str()? {
        "ordinary" => Some(FieldKind::Ordinary),
        "password" => Some(FieldKind::Password),
        "payment" => Some(FieldKind::Payment),
        _ => None,
    }
}

pub(crate) fn field_word(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Ordinary => "ordinary",
        FieldKind::Password => "password",
        FieldKind::Payment => "payment",
    }
}
