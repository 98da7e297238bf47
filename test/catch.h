// Catch2 2.13 and 3.x under one name. Tests include this and nothing of Catch2's own.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
using Catch::Matchers::Contains;
inline auto ContainsSubstring(const std::string& part) { return Contains(part); }
#endif
