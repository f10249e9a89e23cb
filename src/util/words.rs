//! Enums of words: labels, flag values and other fixed texts.

/// Declares an enum with one text for each variant, the array `ALL` of its variants and the methods `as_str` and `parse`.
macro_rules! words {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident { $($(#[$about:meta])* $variant:ident = $text:literal,)+ }
    ) => {
        $(#[$attribute])*
        $visibility enum $name { $($(#[$about])* $variant,)+ }

        // Not every enum needs the list.
        #[allow(dead_code)]
        impl $name {
            /// All variants, in the order of their declaration.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// Returns the text of the variant.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Returns the variant with this text.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

pub(crate) use words;
