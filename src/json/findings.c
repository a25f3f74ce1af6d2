/* Findings of doctors; see findings.h. */
#include "json/findings.h"

void json_write_findings(struct json_writer *writer, bool is_good,
                         const struct json_finding *findings, size_t count)
{
    json_write_pair_bool(writer, "ok", is_good);
    json_write_key(writer, "findings");
    json_write_array_begin(writer);
    for (size_t i = 0; i < count; i++) {
        json_write_object_begin(writer);
        json_write_pair_string(writer, "name", findings[i].name);
        json_write_pair_string(writer, "level", findings[i].level);
        json_write_pair_string(writer, "text", findings[i].text);
        json_write_pair_string(writer, "lost", findings[i].lost);
        json_write_pair_string(writer, "cure", findings[i].cure);
        json_write_object_end(writer);
    }
    json_write_array_end(writer);
}
