// StudySpec as JSON, as both kinds of files hold it.
#pragma once

#include "divisi/study.h"
#include "json/value.h"

namespace divisi::tune {

// A text that should hold JSON, as a value; `what` names it when it does not.
Result<json::Value> json_of(const std::string& text, std::string_view what);

// All but the name. Fails when a text that should be JSON is not.
Result<json::Value> spec_to_json(const StudySpec& spec);
StudySpec spec_from_json(std::string name, const json::Value& value);

// A number that may be written as "nan", "inf" or "-inf".
json::Value number_to_json(double number);
Result<double> number_from_json(const json::Value& value);

// The first difference of two descriptions of what is searched, as space_text() writes them, told
// from the second one's view; "" if there is none.
std::string space_difference(const std::string& stored, const std::string& given);

}  // namespace divisi::tune
