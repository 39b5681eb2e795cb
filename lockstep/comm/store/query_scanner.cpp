#include <lockstep/comm/store/query_scanner.h>

#include <cstring>

#include <lockstep/comm/store/protocol.h>
#include <lockstep/comm/store/reader.h>

namespace lockstep::tcp_store {
namespace {

// The fields of a query: texts, and then a number. In a list the texts are those of each item.
struct QueryShape {
  std::uint64_t texts = 0;
  bool list = false;
  std::size_t number_bytes = 0;
};

QueryShape shape_of(Query query) {
  switch (query) {
    case Query::kValidate:
    case Query::kPing:
      return {.number_bytes = sizeof(std::uint32_t)};
    case Query::kGet:
    case Query::kDelete:
    case Query::kMeet:
    case Query::kProve:
      return {.texts = 1};
    case Query::kAdd:
      return {.texts = 1, .number_bytes = sizeof(std::int64_t)};
    case Query::kSet:
    case Query::kAppend:
      return {.texts = 2};
    case Query::kCompareSet:
      return {.texts = 3};
    case Query::kCheck:
    case Query::kWait:
    case Query::kMultiGet:
      return {.texts = 1, .list = true};
    case Query::kMultiSet:
      return {.texts = 2, .list = true};
    case Query::kCountKeys:
    case Query::kCancelWait:
      return {};
  }
  throw Malformed();
}

}  // namespace

std::optional<std::size_t> QueryScanner::scan(std::string_view bytes) {
  if (!begun_) {
    if (bytes.empty()) return std::nullopt;
    const QueryShape shape = shape_of(static_cast<Query>(bytes[0]));
    begun_ = true;
    position_ = 1;
    list_ = shape.list;
    per_item_ = shape.texts;
    texts_left_ = shape.list ? 0 : shape.texts;
    number_bytes_ = shape.number_bytes;
  }
  while (list_ || texts_left_ > 0) {
    std::uint64_t length = 0;
    if (bytes.size() < position_ + sizeof(length)) return std::nullopt;
    std::memcpy(&length, bytes.data() + position_, sizeof(length));
    position_ += sizeof(length);
    if (list_) {
      if (length > Reader::kMostTexts) throw Malformed();
      list_ = false;
      texts_left_ = length * per_item_;
    } else {
      if (length > Reader::kLongestText) throw Malformed();
      position_ += length;
      --texts_left_;
    }
    if (position_ + texts_left_ * sizeof(length) + number_bytes_ > longest_) throw Malformed();
  }
  const std::size_t end = position_ + number_bytes_;
  if (end > longest_) throw Malformed();
  if (bytes.size() < end) return std::nullopt;
  begun_ = false;
  return end;
}

}  // namespace lockstep::tcp_store
