//! A macro for enums whose variants are stored as text.

/// Defines an enum with the text of each variant, `ALL`, `as_str`, `Display` and `FromStr`. The
/// string after the name completes the error "invalid value: expected …".
macro_rules! text_enum {
    ($(#[$meta:meta])* $type:ident, $expected:literal, $($(#[$of:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        $(#[$meta])*
        pub enum $type {
            $($(#[$of])* $variant),+
        }

        impl $type {
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let known = Self::ALL.into_iter().find(|known| known.as_str() == text);
                known.ok_or($crate::Error::NameMalformed { what: $expected })
            }
        }
    };
}
pub(crate) use text_enum;
